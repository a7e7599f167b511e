package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

func TestHintIsADiallableAddress(t *testing.T) {
	host := strings.Repeat("h", hintBytesMax-len(":7942"))
	for addr, want := range map[string]bool{
		"narad-4.narad-headless:7942": true,
		"10.0.0.1:1":                  true,
		"[::1]:65535":                 true,
		host + ":7942":                true,
		host + "h:7942":               false,
		"":                            false,
		"narad-4":                     false,
		":7942":                       false,
		"narad-4:":                    false,
		"narad-4:0":                   false,
		"narad-4:00":                  false,
		"narad-4:65536":               false,
		"narad-4:-1":                  false,
		"narad-4:http":                false,
		"narad-4:7942:7943":           false,
	} {
		if validHint(addr) != want {
			t.Errorf("%.40q (%d bytes): want %v", addr, len(addr), want)
		}
	}
}

func TestEightLeadersAreRememberedMostRecentFirst(t *testing.T) {
	var l leaders
	for i := range leadersKept + 3 {
		l.remember(fmt.Sprintf("h%d:1", i))
	}
	l.remember("h7:1")
	if want := (leaders{"h7:1", "h10:1", "h9:1", "h8:1", "h6:1", "h5:1", "h4:1", "h3:1"}); !slices.Equal(l, want) {
		t.Errorf("%v, want %v", l, want)
	}
}

// script is the answers of other nodes by their address; an address without one is
// unreachable.
type script struct {
	mu      sync.Mutex
	answers map[string]peer.JoinAnswer
	asked   []string
	request peer.JoinRequest // the last
}

func (s *script) Join(_ context.Context, addr string, j peer.JoinRequest) (peer.JoinAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, addr)
	s.request = j
	a, ok := s.answers[addr]
	if !ok {
		return a, fmt.Errorf("%w: %s", peer.ErrUnreached, addr)
	}
	return a, nil
}

func status(code int) peer.JoinAnswer { return peer.JoinAnswer{Status: code} }

func see(addr string) peer.JoinAnswer {
	return peer.JoinAnswer{Status: http.StatusMisdirectedRequest, LeaderID: "leader", LeaderAddr: addr}
}

func staged() peer.JoinAnswer { return admitted(admissionStaged, "") }

func newWalker(s *script, log *slog.Logger) *walker {
	return &walker{client: s, self: Self{ID: "me", APIAddr: "me:1"}, log: log, lines: telemetry.NewLimiter(clock.NewFake(time.Unix(0, 0)), rejectedEvery)}
}

func TestWalk(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers map[string]peer.JoinAnswer
		targets string
		asked   string
		via     string // "" = undecided
		known   string
	}{
		{"the first that admits decides", map[string]peer.JoinAnswer{"a:1": staged(), "b:1": staged()}, "a:1 b:1", "a:1", "a:1", ""},
		{"a refusal decides too", map[string]peer.JoinAnswer{"a:1": status(409), "b:1": staged()}, "a:1 b:1", "a:1", "a:1", ""},
		{"412, silence and oddities do not", map[string]peer.JoinAnswer{"a:1": status(412), "c:1": status(503), "d:1": status(400), "e:1": staged()}, "a:1 b:1 c:1 d:1 e:1", "a:1 b:1 c:1 d:1 e:1", "e:1", ""},
		{"a hint comes before the next peer", map[string]peer.JoinAnswer{"a:1": see("l:1"), "l:1": staged()}, "a:1 b:1", "a:1 l:1", "l:1", "l:1"},
		{"a dead leader, then the next peer", map[string]peer.JoinAnswer{"a:1": see("l:1"), "b:1": staged()}, "a:1 b:1", "a:1 l:1 b:1", "b:1", "l:1"},
		{"a 421 without a hint", map[string]peer.JoinAnswer{"a:1": see(""), "b:1": staged()}, "a:1 b:1", "a:1 b:1", "b:1", ""},
		{"no hint that cannot be dialled", map[string]peer.JoinAnswer{"a:1": see("l:0"), "b:1": staged()}, "a:1 b:1", "a:1 b:1", "b:1", ""},
		{"no hint to this node by its address", map[string]peer.JoinAnswer{"a:1": see("me:1"), "b:1": staged()}, "a:1 b:1", "a:1 b:1", "b:1", ""},
		{"no hint to this node by its id", map[string]peer.JoinAnswer{"a:1": {Status: 421, LeaderID: "me", LeaderAddr: "x:1"}, "b:1": staged()}, "a:1 b:1", "a:1 b:1", "b:1", ""},
		{"this node is not asked", map[string]peer.JoinAnswer{"b:1": staged()}, "me:1 b:1", "b:1", "b:1", ""},
		{"nobody twice, around a circle", map[string]peer.JoinAnswer{"a:1": see("b:1"), "b:1": see("a:1")}, "a:1 b:1 a:1", "a:1 b:1", "", "a:1 b:1"},
		{"no hint of a 200 or a 503", map[string]peer.JoinAnswer{"a:1": {Status: 503, LeaderAddr: "l:1"}, "b:1": status(412)}, "a:1 b:1", "a:1 b:1", "", ""},
		{
			"four hints and no more",
			map[string]peer.JoinAnswer{"a:1": see("h1:1"), "h1:1": see("h2:1"), "h2:1": see("h3:1"), "h3:1": see("h4:1"), "h4:1": see("h5:1"), "h5:1": staged()},
			"a:1 b:1", "a:1 h1:1 h2:1 h3:1 h4:1 b:1", "", "h5:1 h4:1 h3:1 h2:1 h1:1",
		},
		{
			"four hints of all peers together",
			map[string]peer.JoinAnswer{"a:1": see("h1:1"), "b:1": see("h2:1"), "c:1": see("h3:1"), "d:1": see("h4:1"), "e:1": see("h5:1"), "h5:1": staged()},
			"a:1 b:1 c:1 d:1 e:1", "a:1 h1:1 b:1 h2:1 c:1 h3:1 d:1 h4:1 e:1", "", "h5:1 h4:1 h3:1 h2:1 h1:1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: c.answers}
			w := newWalker(s, telemetry.Discard())
			d, ok := w.attempt(context.Background(), peer.JoinRequest{ID: "me"}, strings.Fields(c.targets), map[string]bool{})
			if got := strings.Join(s.asked, " "); got != c.asked {
				t.Errorf("asked %s, want %s", got, c.asked)
			}
			if d.via != c.via || ok != (c.via != "") {
				t.Errorf("decided by %q, %v; want %q", d.via, ok, c.via)
			}
			if got := strings.Join(w.known, " "); got != c.known {
				t.Errorf("remembers %s, want %s", got, c.known)
			}
		})
	}
}

func TestWalkStopsWithItsContext(t *testing.T) {
	s := &script{answers: map[string]peer.JoinAnswer{"a:1": staged()}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok := newWalker(s, telemetry.Discard()).attempt(ctx, peer.JoinRequest{}, []string{"a:1"}, map[string]bool{}); ok || len(s.asked) > 0 {
		t.Errorf("asked %v", s.asked)
	}
}

// An answer that means nothing to a joiner is worth a line per peer and status, once a
// minute. A node that starts, or has no leader either, is nothing odd.
func TestOddAnswersAreLoggedOnce(t *testing.T) {
	var log syncBuffer
	clk := clock.NewFake(time.Unix(0, 0))
	s := &script{answers: map[string]peer.JoinAnswer{"a:1": status(400), "b:1": status(412), "c:1": status(421), "d:1": status(503)}}
	w := newWalker(s, slog.New(slog.NewTextHandler(&log, nil)))
	w.lines = telemetry.NewLimiter(clk, rejectedEvery)
	lines := func() int { return strings.Count(log.String(), `msg="cluster join rejected" via=a:1 status=400`) }
	for range 3 {
		w.attempt(context.Background(), peer.JoinRequest{}, []string{"a:1", "b:1", "c:1", "d:1"}, map[string]bool{})
	}
	if lines() != 1 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("want one line:\n%s", &log)
	}
	clk.Advance(rejectedEvery)
	w.attempt(context.Background(), peer.JoinRequest{}, []string{"a:1"}, map[string]bool{})
	if lines() != 2 {
		t.Errorf("want another after a minute:\n%s", &log)
	}
}

// A peer gets 2 s.
func TestAskIsBounded(t *testing.T) {
	w := newWalker(nil, telemetry.Discard())
	w.client = joinerFunc(func(ctx context.Context) (peer.JoinAnswer, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left > joinTimeout || left < joinTimeout/2 {
			t.Errorf("%s left, %v", left, ok)
		}
		return peer.JoinAnswer{}, errors.New("no")
	})
	w.attempt(context.Background(), peer.JoinRequest{}, []string{"a:1"}, map[string]bool{})
}

type joinerFunc func(ctx context.Context) (peer.JoinAnswer, error)

func (f joinerFunc) Join(ctx context.Context, _ string, _ peer.JoinRequest) (peer.JoinAnswer, error) {
	return f(ctx)
}
