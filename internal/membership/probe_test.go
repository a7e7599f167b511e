package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/testutil"
)

func probeOptions(s *script) ProbeOptions {
	return ProbeOptions{
		Self: "n0", APIAddr: "n0:1", RaftAddr: "n0:2", Empty: true, EntryTypes: 37, Client: s, pause: time.Millisecond,
		Peers: []config.Peer{{ID: "n0", APIAddr: "n0:1"}, {ID: "n1", APIAddr: "n1:1"}, {ID: "n2", APIAddr: "n2:1"}},
	}
}

func TestProbe(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers map[string]peer.JoinAnswer
		edit    func(*ProbeOptions)
		join    bool
		asked   int
	}{
		{"nobody answers: a new install", nil, nil, false, 2 * probeRounds},
		{"412 is no evidence", map[string]peer.JoinAnswer{"n1:1": status(412), "n2:1": status(412)}, nil, false, 2 * probeRounds},
		{"nor is a node that is not ready", map[string]peer.JoinAnswer{"n1:1": status(503), "n2:1": status(400)}, nil, false, 2 * probeRounds},
		{"200", map[string]peer.JoinAnswer{"n1:1": status(412), "n2:1": staged()}, nil, true, 2},
		{"409", map[string]peer.JoinAnswer{"n1:1": status(409)}, nil, true, 2},
		{"421 without a leader", map[string]peer.JoinAnswer{"n2:1": see("")}, nil, true, 2},
		{"421: the leader is told too", map[string]peer.JoinAnswer{"n1:1": see("n7:1"), "n2:1": see("n7:1"), "n7:1": staged()}, nil, true, 3},
		{"421: told once when it is a peer", map[string]peer.JoinAnswer{"n1:1": see("n2:1"), "n2:1": staged()}, nil, true, 2},
		{"a volume with state asks nobody", map[string]peer.JoinAnswer{"n1:1": staged()}, func(o *ProbeOptions) { o.Empty = false }, false, 0},
		{"no initial member asks nobody", nil, func(o *ProbeOptions) { o.Initial = []string{"n1", "n2"} }, true, 0},
		{"not among the peers", nil, func(o *ProbeOptions) { o.Self = "n9" }, true, 0},
		{"no initial member, whatever is on its disk", nil, func(o *ProbeOptions) { o.Self, o.Empty = "n9", false }, true, 0},
		{"a node without peers", nil, func(o *ProbeOptions) { o.Peers = nil }, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: c.answers}
			o := probeOptions(s)
			if c.edit != nil {
				c.edit(&o)
			}
			join, err := Probe(context.Background(), o)
			if err != nil || join != c.join {
				t.Errorf("join %v, %v; want %v", join, err, c.join)
			}
			if len(s.asked) != c.asked || slices.Contains(s.asked, "n0:1") {
				t.Errorf("asked %v, want %d", s.asked, c.asked)
			}
			if want := (peer.JoinRequest{ID: "n0", RaftAddr: "n0:2", Empty: true, EntryTypes: 37}); c.asked > 0 && s.request != want {
				t.Errorf("sent %+v, want %+v", s.request, want)
			}
		})
	}
}

// Three rounds, a second apart.
func TestProbeRounds(t *testing.T) {
	s := &script{}
	clk := clock.NewFake(time.Unix(0, 0))
	o := probeOptions(s)
	o.Clock, o.pause = clk, 0
	done := make(chan bool)
	go func() {
		join, _ := Probe(context.Background(), o)
		done <- join
	}()
	asked := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.asked)
	}
	for round := 1; round <= probeRounds; round++ {
		testutil.Eventually(t, waitMax, func() bool { return asked() == 2*round && (round == probeRounds || clk.Timers() == 1) }, "the round")
		if round < probeRounds {
			clk.Advance(probePause - 1)
			if asked() != 2*round {
				t.Error("a round came early")
			}
			clk.Advance(1)
		}
	}
	if <-done {
		t.Error("it joins nobody")
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := probeOptions(&script{})
	o.pause = time.Hour
	if join, err := Probe(ctx, o); join || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", join, err)
	}
}

// The peers of a round are asked at once: together they take what one may take.
func TestProbeAsksAllAtOnce(t *testing.T) {
	arrived := make(chan struct{}, 2)
	both := make(chan struct{})
	go func() { <-arrived; <-arrived; close(both) }()
	o := probeOptions(nil)
	o.Client = joinerFunc(func(ctx context.Context) (peer.JoinAnswer, error) {
		arrived <- struct{}{}
		select {
		case <-both:
			return staged(), nil
		case <-ctx.Done():
			return peer.JoinAnswer{}, ctx.Err()
		}
	})
	if join, err := Probe(context.Background(), o); !join || err != nil {
		t.Errorf("%v, %v", join, err)
	}
}

func TestLifecycleConstants(t *testing.T) {
	p := lifecyclePace()
	got := []time.Duration{p.join, p.leaderless, p.led, p.beat, p.beatFirst, joinTimeout, probePause, failingFor, failingEvery}
	want := []time.Duration{2 * time.Second, 15 * time.Second, 12 * time.Second, 5 * time.Second, 250 * time.Millisecond, 2 * time.Second, time.Second, 10 * time.Second, time.Minute}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if counts := []int{hintsFollowed, leadersKept, hintBytesMax, probeRounds, failingBeats}; !slices.Equal(counts, []int{4, 8, 261, 3, 3}) {
		t.Errorf("%v", counts)
	}
	if c := (candidate{led: p.led - 1, ledMin: p.led}); !strings.Contains(c.deferral(), "12s") {
		t.Error(c.deferral())
	}
}
