package membership

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// ProbeOptions is a node that is about to open its metastore.
type ProbeOptions struct {
	Self       string        // node id
	APIAddr    string        // host:port of this node's API, which is not asked
	RaftAddr   string        // host:port other nodes will dial for this node's Raft
	Peers      []config.Peer // as configured; none = a node of its own
	Initial    []string      // ids that may start the cluster; none = every peer
	Empty      bool          // the volume has no Raft state; see metastore.HasState
	EntryTypes int           // newest Raft entry type this node applies

	Client Joiner
	Clock  clock.Clock  // nil = the real one
	Logger *slog.Logger // nil = none

	pause time.Duration // between rounds; 0 = probePause; for tests
}

// Probe decides whether a node opens its metastore join-only. One that may not start a
// cluster does, always. An initial member with an empty volume does when any peer
// answers for a configured cluster: it would start a rival one. A 412 and silence show
// no cluster; on a new install nobody has one.
//
// The requests are joins that declare the empty volume. So where this node had a vote,
// the leader takes it before this node's Raft, which has forgotten what it voted and
// stored, runs again.
//
// It takes up to 3 rounds, 1 s apart, of 2 s a peer, all peers at once. The error is the
// context's.
func Probe(ctx context.Context, o ProbeOptions) (join bool, err error) {
	cluster := config.Cluster{NodeID: o.Self, Peers: o.Peers, InitialMembers: o.Initial}
	if !cluster.MayBootstrap() {
		return true, nil
	}
	o.setDefaults()
	others := addresses(o.Peers, o.Self)
	if !o.Empty || len(others) == 0 {
		return false, nil
	}
	timer := o.Clock.NewTimer(o.pause)
	defer timer.Stop()
	for round := range probeRounds {
		if round > 0 {
			timer.Reset(o.pause)
			select {
			case <-timer.C():
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		if o.round(ctx, others) {
			return true, nil
		}
	}
	return false, ctx.Err()
}

func (o *ProbeOptions) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.pause == 0 {
		o.pause = probePause
	}
}

// addresses are the API addresses of the peers but one.
func addresses(peers []config.Peer, but string) (out []string) {
	for _, p := range peers {
		if p.ID != but {
			out = append(out, p.APIAddr)
		}
	}
	return out
}

func (o *ProbeOptions) walker() *walker {
	return &walker{
		client: o.Client, self: Self{ID: o.Self, APIAddr: o.APIAddr}, log: o.Logger,
		lines: telemetry.NewLimiter(o.Clock, rejectedEvery),
	}
}

// round asks every peer at once, and reports whether one answered for a cluster. When
// none of them was the leader, the one they name is told as well.
func (o *ProbeOptions) round(ctx context.Context, others []string) bool {
	req := peer.JoinRequest{ID: o.Self, RaftAddr: o.RaftAddr, Empty: true, EntryTypes: o.EntryTypes}
	answers := make([]peer.JoinAnswer, len(others))
	var asked sync.WaitGroup
	for i, addr := range others {
		asked.Go(func() { answers[i], _ = o.walker().ask(ctx, addr, req) }) // no answer has status 0
	}
	asked.Wait()
	w := o.walker()
	configured, decided := "", false
	visited := map[string]bool{}
	var hints []string
	for i, a := range answers {
		visited[others[i]] = true
		switch a.Status {
		case http.StatusOK, http.StatusConflict:
			configured, decided = others[i], true
		case http.StatusMisdirectedRequest:
			configured = others[i]
			if h := w.hint(a); h != "" {
				hints = append(hints, h)
			}
		}
	}
	if configured == "" {
		return false
	}
	o.Logger.Info("cluster join: a peer answers for a cluster; this node joins it", "via", configured)
	if !decided {
		w.attempt(ctx, req, hints, visited)
	}
	return true
}
