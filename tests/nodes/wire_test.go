package nodes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/ingress"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
	"github.com/narad-mq/narad/internal/peer"
	"github.com/narad-mq/narad/internal/reclaim"
	"github.com/narad-mq/narad/internal/testutil"
)

// wired opens the subject's node-RPC server over QUIC on loopback, and a client of it.
func wired(t *testing.T) (*noderpc.Server, *peer.Client) {
	t.Helper()
	secret, log := []byte("secret of the tests"), slog.New(slog.DiscardHandler)
	s, err := noderpc.Listen(noderpc.ServerOptions{Addr: "127.0.0.1:0", Secret: secret, Secured: true, Clock: clock.Real(), Logger: log})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	main, err := noderpc.NewClient(noderpc.ClientOptions{Name: "main", Secret: secret, Secured: true, Clock: clock.Real(), Logger: log})
	must(t, err)
	t.Cleanup(func() { _ = main.Close() })
	c := peer.NewClient(peer.Options{Main: main, Transfer: main, Level: model.LevelNewest, Self: "n0", Clock: clock.Real(), Logger: log})
	return s, c
}

// What crosses between nodes here, over the real wire: a commit with incarnations, refused
// for another life; the purge of a delete, told by the node that deleted; the cursors of a
// listing.
func TestOverTheWire(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.create("p", idEarly, nodeID(subject))
	c.create("c", idLate, nodeID(subject))
	c.create("doomed", idDoomed, nodeID(subject))
	b := c.open()
	e, _ := c.engine(b)
	r := c.reclaimer(b)
	server, client := wired(t)
	store := c.running(subject)
	peer.ServeCommits(server, model.LevelNewest, ingress.NewSettled(b, store.Settle))
	peer.ServePurge(server, model.LevelNewest, r)
	peer.ServeCursors(server, model.LevelNewest, e)
	server.Ready()
	ctx, cancel := context.WithTimeout(t.Context(), settleMax)
	defer cancel()

	c.do(metastore.AttachChild{Parent: "p", Child: "c", Epoch: "00000000000000ff", Offsets: []int64{0, 0, 0}})
	first, err := client.Commit(ctx, server.Addr(), "p", 0, []model.Record{{Payload: []byte("a"), Incarnation: idEarly}, {Payload: []byte("b"), Key: []byte("k")}})
	if err != nil || first != 0 {
		t.Fatalf("commit: %d, %v", first, err)
	}
	_, err = client.Commit(ctx, server.Addr(), "p", 0, []model.Record{{Payload: []byte("x"), Incarnation: idLate}})
	if !errors.Is(err, model.ErrIncarnation) {
		t.Errorf("a record of another life: %v", err)
	}
	if _, err = client.Commit(ctx, server.Addr(), "nowhere", 0, []model.Record{{Payload: []byte("x")}}); !errors.Is(err, model.ErrTopicNotFound) {
		t.Errorf("a topic that is not: %v", err)
	}
	testutil.Eventually(t, settleMax, func() bool {
		ls, err := client.Cursors(ctx, server.Addr(), "p", "")
		return err == nil && len(ls) == model.PartitionsMin && slices.ContainsFunc(ls, func(l peer.CursorLag) bool {
			return l.Child == "c" && l.Partition == 0 && l.Next == 2 && l.HighWatermark == 2
		})
	}, "the cursors of p to have copied both records")

	commit(t, b, "doomed", idDoomed, "over")
	if err := client.Purge(ctx, server.Addr(), "doomed", idDoomed); !errors.Is(err, model.ErrPurgeDeferred) {
		t.Errorf("a purge of what this replica shows: %v", err)
	}
	bc := reclaim.NewBroadcast(reclaim.BroadcastOptions{Self: "n0", Peers: client, Members: func() []model.Member {
		return []model.Member{{ID: nodeID(subject), Addr: server.Addr(), Status: model.MemberAlive}}
	}})
	defer bc.Close()
	c.do(metastore.RemoveTopic{Name: "doomed", ID: idDoomed})
	bc.Deleted("doomed", idDoomed)
	testutil.Eventually(t, settleMax, func() bool { return !slices.Contains(c.topicDirs(), "doomed") }, "the purge to arrive")
}

// A follower's word on a link is the leader's, over whatever carries it.
func TestFollowerConfirmsLinks(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	c.create("p", idEarly, nodeID(subject))
	c.create("c", idLate, nodeID(subject))
	c.do(metastore.AttachChild{Parent: "p", Child: "c", Epoch: "00000000000000ff"})
	for i := range c.dirs {
		s := c.running(i)
		for epoch, want := range map[string]metastore.Confirmation{"00000000000000ff": metastore.Live, "": metastore.Live, "00000000000000ee": metastore.Gone} {
			var got metastore.Confirmation
			testutil.Eventually(t, settleMax, func() (ok bool) {
				var err error
				got, err = s.ConfirmLink(t.Context(), "p", "c", epoch)
				return err == nil
			}, "the leader's word")
			if got != want {
				t.Errorf("%s says %s of epoch %q, want %s", nodeID(i), got, epoch, want)
			}
		}
	}
}
