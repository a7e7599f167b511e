package partition

import "github.com/narad-mq/narad/internal/commitlog"

// Gauges is a snapshot of a partition's state.
type Gauges struct {
	commitlog.Stats
	Frontier   int64 // oldest unresolved offset
	InFlight   int   // live leases
	AckedAhead int   // acks above the frontier
	Loaded     bool  // queue state is in memory; else the last three are zero
}

// Gauges reads the state from memory, without I/O.
func (p *Partition) Gauges() Gauges {
	g := Gauges{Stats: p.log.Stats()}
	if s := p.shard.Load(); s != nil {
		s.mu.Lock()
		g.Frontier, g.InFlight, g.AckedAhead, g.Loaded = s.table.Frontier(), s.table.InFlight(), s.table.AckedAhead(), true
		s.mu.Unlock()
	}
	return g
}

// Resting reports whether dropping the queue state would lose nothing: no lease is out,
// and the consumer files say all that was settled.
func (p *Partition) Resting() bool {
	s := p.shard.Load()
	if s == nil {
		return true
	}
	s.mu.Lock()
	out := s.table.InFlight()
	s.mu.Unlock()
	return out == 0 && s.tracked.Level()
}
