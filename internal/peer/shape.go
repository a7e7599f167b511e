package peer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// ErrUnsupported: the peer's release does not know the operation.
var ErrUnsupported = errors.New("unsupported rpc operation")

// feature is something a release added to the messages between nodes.
type feature uint8

const (
	featureReport    feature = iota + 1 // build and newest entry type of a heartbeat or join
	featureRuns                         // incarnations of a commit
	featureAckBatch                     // AckBatch
	featureClaim                        // the claim flag of a consume
	featureMax                          // the number of records a consume takes
	featureClaimer                      // who claims
	featureStatus                       // NodeStatus
	featureForget                       // ForgetServer
	featureTail                         // the exact end of one life of a partition
	featurePurgeLife                    // the incarnation a purge is of
)

// since is the release that added each feature.
var since = [...]model.ReleaseLevel{
	featureReport: model.Level31, featureRuns: model.Level31, featureAckBatch: model.Level31,
	featureClaim: model.Level31, featureMax: model.Level31, featureClaimer: model.Level32,
	featureStatus: model.Level31, featureForget: model.Level31, featureTail: model.Level32,
	featurePurgeLife: model.Level30,
}

// knows reports whether a release has a feature; see model.ReleaseLevel.
func knows(level model.ReleaseLevel, f feature) bool {
	return level == model.LevelNewest || level >= since[f]
}

// shape is one way to send a request: the bytes of its body that make it, and the feature
// a peer needs to read them. Fields are only ever appended to a request, so that an older
// shape is the start of the newer one (spec/cluster-and-network section 8).
type shape struct {
	needs feature // 0 = every release reads it
	end   int
}

// older remembers for a while which peers refused which feature.
type older struct {
	clock clock.Clock

	mu    sync.Mutex // guards until
	until map[olderKey]time.Time
}

type olderKey struct {
	addr string
	f    feature
}

func (o *older) refuses(addr string, f feature) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.until) == 0 {
		return false
	}
	k := olderKey{addr, f}
	until, ok := o.until[k]
	if ok && !o.clock.Now().Before(until) {
		delete(o.until, k)
		return false
	}
	return ok
}

func (o *older) remember(addr string, f feature) {
	now := o.clock.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.until) >= olderMax {
		o.forget(now)
	}
	o.until[olderKey{addr, f}] = now.Add(olderFor)
}

// forget makes room: what has passed, or else anything. Caller holds mu.
func (o *older) forget(now time.Time) {
	for k, until := range o.until {
		if !now.Before(until) {
			delete(o.until, k)
		}
	}
	for k := range o.until {
		if len(o.until) < olderMax {
			return
		}
		delete(o.until, k)
	}
}

// may reports whether to use a feature with a peer.
func (c *Client) may(addr string, f feature) bool {
	return f == 0 || knows(c.level, f) && !c.older.refuses(addr, f)
}

// narrowing sends a request in the first shape the peer may read, and at once in the next
// when it refuses that, all within ctx. shapes go from the newest to the oldest, which
// needs nothing.
func (c *Client) narrowing(ctx context.Context, addr string, op noderpc.Op, body []byte, shapes []shape) (noderpc.Response, error) {
	for _, s := range shapes {
		if !c.may(addr, s.needs) {
			continue
		}
		res, err := c.send(ctx, addr, op, body[:s.end])
		if err == nil && s.needs != 0 && refusedTrailing(res) {
			c.older.remember(addr, s.needs)
			c.log.Debug("peer of an older release: sending it less", "peer", addr, "op", op.String())
			continue
		}
		return res, err
	}
	return noderpc.Response{}, fmt.Errorf("%s: %w: no shape is left to send", op, model.ErrTrailingData)
}

// refusedTrailing reports whether a peer met fields it does not know.
func refusedTrailing(res noderpc.Response) bool {
	return res.Status == http.StatusBadRequest && strings.Contains(refusalOf(res).Text, model.ErrTrailingData.Error())
}

// unsupported reports whether a peer does not know the operation.
func unsupported(res noderpc.Response) bool {
	return res.Status == http.StatusBadRequest && strings.Contains(refusalOf(res).Text, ErrUnsupported.Error())
}
