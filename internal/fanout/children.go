package fanout

import "github.com/narad-mq/narad/internal/model"

// Child is one child of a parent as a listing shows it; field order is the order of
// emission (spec/remote-replication section A7).
type Child struct {
	Name    string `json:"name"`
	DelayMS int64  `json:"delay_ms"`
	// LagMessages is the sum of parent high watermark minus cursor over the partitions
	// that report; LagComplete is false while some do not, and the sum a lower bound.
	LagMessages int64 `json:"lag_messages"`
	LagComplete bool  `json:"lag_complete"`
}

// Children lists a parent's children in attach order. It opens no log and counts as a
// use of none. A partition of another node does not report.
func (e *Engine) Children(parent *model.TopicView) []Child {
	out := make([]Child, 0, len(parent.Children))
	for _, name := range parent.Children {
		view, ok := e.opts.Replica.Topic(name)
		if !ok || view.Parent != parent.Name {
			continue
		}
		child := Child{Name: name, DelayMS: view.FanoutDelayMS, LagComplete: true}
		for p := range parent.Partitions {
			lag, ok := e.lag(parent, view, p)
			child.LagMessages += lag
			child.LagComplete = child.LagComplete && ok
		}
		out = append(out, child)
	}
	return out
}

// lag is how far one cursor is behind; false when that is not known.
func (e *Engine) lag(parent, child *model.TopicView, p int) (int64, bool) {
	c := e.set.get(place{parent.Name, p, child.Name})
	if c == nil || !c.link.same(parent, child) {
		return 0, false
	}
	next := c.next.Load() // before the high watermark: it only grows
	high, exact, err := e.opts.Parents.Tail(parent.Name, parent.ID, p)
	if next == notStarted || !exact || err != nil {
		return 0, false
	}
	return max(high-next, 0), true
}
