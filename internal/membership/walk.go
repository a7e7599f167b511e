package membership

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/telemetry"
)

// Joiner asks a node to have this one admitted. A status is no error: an error means
// that the node gave no answer.
type Joiner interface {
	Join(ctx context.Context, addr string, j peer.JoinRequest) (peer.JoinAnswer, error)
}

// walker asks one node after the other until one decides. Its owner is one goroutine.
type walker struct {
	client Joiner
	self   Self
	log    *slog.Logger
	lines  *telemetry.Limiter // per peer and status
	known  leaders
}

// decision is the answer of a node that decided, and who that was.
type decision struct {
	via string // API address
	peer.JoinAnswer
}

// refused reports whether the leader refused the join for now or for good.
func (d decision) refused() bool { return d.Status == http.StatusConflict }

// attempt asks the targets in order, and after each 421 the leader it names, until a
// node admits or refuses the joiner. It follows at most hintsFollowed hints and asks
// nobody twice; visited are those asked before.
func (w *walker) attempt(ctx context.Context, req peer.JoinRequest, targets []string, visited map[string]bool) (decision, bool) {
	followed := 0
	for _, target := range targets {
		for addr := target; addr != "" && !visited[addr] && addr != w.self.APIAddr && ctx.Err() == nil; {
			visited[addr] = true
			a, err := w.ask(ctx, addr, req)
			if err != nil {
				break
			}
			switch a.Status {
			case http.StatusOK, http.StatusConflict:
				return decision{via: addr, JoinAnswer: a}, true
			}
			if addr = w.hint(a); addr != "" {
				if followed++; followed > hintsFollowed {
					break
				}
			}
		}
	}
	return decision{}, false
}

// hint is the leader's address in a 421, remembered; "" when there is none to follow.
func (w *walker) hint(a peer.JoinAnswer) string {
	if a.Status != http.StatusMisdirectedRequest || a.LeaderID == w.self.ID || !validHint(a.LeaderAddr) || a.LeaderAddr == w.self.APIAddr {
		return ""
	}
	w.known.remember(a.LeaderAddr)
	return a.LeaderAddr
}

// ask sends one request, and says what is odd about the answer.
func (w *walker) ask(ctx context.Context, addr string, req peer.JoinRequest) (peer.JoinAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	a, err := w.client.Join(ctx, addr, req)
	switch {
	case errors.Is(err, noderpc.ErrProof): // it stays so until a person compares the secrets
		w.lines.Warn(w.log, addr+" proof", "cluster join rejected", "via", addr, "err", err)
		return a, err
	case err != nil:
		w.log.Debug("cluster join attempt failed", "via", addr, "err", err)
		return a, err
	}
	switch a.Status {
	case http.StatusOK, http.StatusConflict, http.StatusPreconditionFailed, http.StatusMisdirectedRequest:
	case http.StatusServiceUnavailable: // it starts, or has no leader either: the walk goes on
		w.log.Debug("cluster join attempt failed", "via", addr, "status", a.Status, "reason", a.Reason)
	default:
		w.lines.Warn(w.log, addr+" "+http.StatusText(a.Status), "cluster join rejected", "via", addr, "status", a.Status)
	}
	return a, nil
}
