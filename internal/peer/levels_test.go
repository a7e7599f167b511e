package peer

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// releases are the levels a node of this release may act as.
var releases = []struct {
	name  string
	level model.ReleaseLevel
}{{"3.0", model.Level30}, {"3.1", model.Level31}, {"3.2", model.Level32}, {"newest", model.LevelNewest}}

// forReleases runs f for every pair of a calling and a serving release.
func forReleases(t *testing.T, f func(t *testing.T, client, server model.ReleaseLevel)) {
	for _, client := range releases {
		for _, server := range releases {
			t.Run(client.name+" to "+server.name, func(t *testing.T) { f(t, client.level, server.level) })
		}
	}
}

// both reports whether two releases can use a feature with each other.
func both(client, server model.ReleaseLevel, f feature) bool {
	return knows(client, f) && knows(server, f)
}

// tries is how often an operation is sent the first time: once, and once more for each
// feature the client tries that the server lacks.
func tries(client, server model.ReleaseLevel, fs ...feature) int {
	n := 1
	for _, f := range fs {
		if knows(client, f) && !knows(server, f) {
			n++
		}
	}
	return n
}

// sent asserts how often an operation went out since the last look.
func sent(t *testing.T, c *caller, op noderpc.Op, want int) {
	t.Helper()
	got := c.wire.ops()
	if len(got) != want || slices.ContainsFunc(got, func(o noderpc.Op) bool { return o != op }) {
		t.Errorf("sent %v, want %d of %s", got, want, op)
	}
}

// Section 8: a commit batch with incarnation runs goes to an older owner without ids, who
// commits by name; the owner is remembered for 2 minutes.
func TestLevelsCommit(t *testing.T) {
	forReleases(t, func(t *testing.T, client, server model.ReleaseLevel) {
		n, c := newNode(t), newCaller(t, client)
		var s stored
		ServeCommits(n, server, &s)
		recs := []model.Record{{Payload: []byte("p"), Incarnation: life1}, {Payload: []byte("q")}}
		want := slices.Clone(recs)
		if !both(client, server, featureRuns) {
			want[0].Incarnation = ""
		}
		first := tries(client, server, featureRuns)
		for i, times := range []int{first, 1} {
			if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, recs); err != nil {
				t.Fatal(err)
			}
			sent(t, c, noderpc.OpCommitProduceBatch, times)
			if _, _, got := s.seen(); !reflect.DeepEqual(got[2*i:], want) {
				t.Errorf("committed %+v, want %+v", got[2*i:], want)
			}
		}
		c.clock.Advance(olderFor - time.Nanosecond)
		if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, recs); err != nil {
			t.Fatal(err)
		}
		sent(t, c, noderpc.OpCommitProduceBatch, 1)
		c.clock.Advance(time.Nanosecond)
		if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, recs); err != nil {
			t.Fatal(err)
		}
		sent(t, c, noderpc.OpCommitProduceBatch, first)
		// Nothing to leave out, nothing to try.
		if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, recs[1:]); err != nil {
			t.Fatal(err)
		}
		sent(t, c, noderpc.OpCommitProduceBatch, 1)
	})
}

// Section 8: AckBatch becomes single ops at an older peer.
func TestLevelsAckBatch(t *testing.T) {
	forReleases(t, func(t *testing.T, client, server model.ReleaseLevel) {
		n, c := newNode(t), newCaller(t, client)
		ServeQueue(n, server, &queue{settle: verdict})
		hs := []model.Handle{handle(0), handle(1), handle(2), handle(3), handle(4)}
		for i := range 2 {
			errs, err := c.SettleMany(t.Context(), n.Addr(), "t", hs, model.Ack)
			if err != nil || len(errs) != len(hs) {
				t.Fatalf("%v, %v", errs, err)
			}
			for i, err := range errs {
				if !holds(hs[i], err) {
					t.Errorf("%d: %v", i, err)
				}
			}
			batches, singles := c.wire.count(noderpc.OpAckBatch), c.wire.count(noderpc.OpAck)
			wantBatches, wantSingles := 1, 0
			if !both(client, server, featureAckBatch) {
				wantBatches, wantSingles = tries(client, server, featureAckBatch)-1, len(hs)
				if i == 1 {
					wantBatches = 0
				}
			}
			if batches != wantBatches || singles != wantSingles {
				t.Errorf("pass %d: %d batches and %d single ops, want %d and %d", i, batches, singles, wantBatches, wantSingles)
			}
			c.wire.ops()
		}
	})
}

// Section 8: a Consume with max gets one record of an older owner; a claim drops who
// claims, max, then the flag, and is a plain probe in the end.
func TestLevelsConsume(t *testing.T) {
	forReleases(t, func(t *testing.T, client, server model.ReleaseLevel) {
		n, c := newNode(t), newCaller(t, client)
		served := make(chan ConsumeRequest, 1)
		q := &queue{consume: func(_ context.Context, r ConsumeRequest) ([]model.Delivery, error) {
			served <- r
			return leased("t", r.Max, 1), nil
		}}
		ServeQueue(n, server, q)
		many := 1
		if both(client, server, featureMax) {
			many = 7
		}
		probe := ConsumeRequest{Topic: "t", Partition: AnyPartition, Max: 7}
		for _, times := range []int{tries(client, server, featureMax), 1} {
			got, err := c.Consume(t.Context(), n.Addr(), probe)
			if err != nil || len(got) != many {
				t.Fatalf("%d records, want %d: %v", len(got), many, err)
			}
			if r := <-served; r.Max != many || r.Claim {
				t.Errorf("served %+v", r)
			}
			sent(t, c, noderpc.OpConsume, times)
		}
		claim := ConsumeRequest{Topic: "t", Partition: AnyPartition, Max: 7, Claim: true}
		want := ConsumeRequest{Topic: "t", Partition: AnyPartition, Max: many, Claim: both(client, server, featureClaim)}
		if both(client, server, featureClaimer) {
			want.Claimer = "narad-1"
		}
		// The probe has told about max already.
		for _, times := range []int{tries(client, server, featureClaimer, featureClaim), 1} {
			if _, err := c.Consume(t.Context(), n.Addr(), claim); err != nil {
				t.Fatal(err)
			}
			if r := <-served; r != want {
				t.Errorf("served %+v, want %+v", r, want)
			}
			sent(t, c, noderpc.OpConsume, times)
		}
	})
}

// The order in which a claim shrinks, at a peer about which nothing is known yet.
func TestClaimShrinksInOrder(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	lengths := make(chan int, 4)
	n.Handle(noderpc.OpConsume, func(_ context.Context, body []byte) noderpc.Response {
		lengths <- len(body)
		if len(body) > 21 {
			return refuse(noderpc.OpConsume, noderpc.ErrTrailing).response()
		}
		return empty()
	}, nil)
	if _, err := c.Consume(t.Context(), n.Addr(), ConsumeRequest{Topic: "t", Partition: -1, Max: 3, Claim: true}); err != nil {
		t.Fatal(err)
	}
	plain := 4 + 1 + 4 + 8 + 4
	for _, want := range []int{plain + 1 + 4 + 4 + 7, plain + 1 + 4, plain + 1, plain} {
		if got := <-lengths; got != want {
			t.Errorf("a body of %d bytes, want %d", got, want)
		}
	}
}

// Section 8: heartbeats and joins go again at once without what an older leader does not
// know, on every path, and nothing is remembered.
func TestLevelsHeartbeatAndJoin(t *testing.T) {
	forReleases(t, func(t *testing.T, client, server model.ReleaseLevel) {
		n, c := newNode(t), newCaller(t, client)
		m := &members{}
		ServeMembers(n, server, m, nil)
		report := MemberReport{ID: "n", APIAddr: "a:1", RaftAddr: "a:2", Build: "3.2.0", EntryTypes: 37}
		join := JoinRequest{ID: "n", RaftAddr: "a:2", Empty: true, EntryTypes: 37}
		wantReport, wantJoin := report, join
		if !both(client, server, featureReport) {
			wantReport.Build, wantReport.EntryTypes, wantJoin.EntryTypes = "", 0, 0
		}
		times := tries(client, server, featureReport)
		for range 2 { // nothing is remembered
			if err := c.Register(t.Context(), n.Addr(), report); err != nil {
				t.Fatal(err)
			}
			sent(t, c, noderpc.OpRegisterMember, times)
			a, err := c.Join(t.Context(), n.Addr(), join)
			if err != nil || a.Status != 200 || a.Admission != "deferred" || a.Reason != "not yet" {
				t.Fatalf("%+v, %v", a, err)
			}
			sent(t, c, noderpc.OpJoinCluster, times)
		}
		if r, j := m.seen(); r != wantReport || j != wantJoin {
			t.Errorf("%+v and %+v arrived", r, j)
		}
	})
}

// Section 8: operations a release does not have.
func TestLevelsOperations(t *testing.T) {
	for _, server := range releases {
		t.Run(server.name, func(t *testing.T) {
			n, c := newNode(t), newCaller(t, model.LevelNewest)
			ServeStatus(n, server.level, status{Node: "narad-0"})
			ServeForget(n, server.level, forgetter(func(string, string) (bool, error) { return true, nil }), nil)
			st, err := c.NodeStatus(t.Context(), n.Addr())
			voter, forgetErr := c.Forget(t.Context(), n.Addr(), "n", "bob")
			if server.level != model.Level30 {
				if err != nil || st.Node != "narad-0" || forgetErr != nil || !voter {
					t.Errorf("%+v, %v; %v, %v", st, err, voter, forgetErr)
				}
				return
			}
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("node status: %v", err)
			}
			var refused *StatusError
			if !errors.As(forgetErr, &refused) || refused.Status != 501 ||
				refused.Text != "the leader runs a release that cannot forget a Raft server; upgrade it first" {
				t.Errorf("forget: %v", forgetErr)
			}
		})
	}
}

// Section 8: a purge of an incarnation is repeated by name at a peer that knows none.
func TestLevelsPurge(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	purged := make(chan string, 1)
	n.Handle(noderpc.OpPurgeTopic, func(_ context.Context, body []byte) noderpc.Response {
		d := noderpc.NewDecoder(body)
		name := d.Str()
		if err := d.Done(); err != nil {
			return refuse(noderpc.OpPurgeTopic, err).response()
		}
		purged <- name
		return empty()
	}, nil)
	for _, times := range []int{2, 1} {
		if err := c.Purge(t.Context(), n.Addr(), "t", life1); err != nil {
			t.Fatal(err)
		}
		sent(t, c, noderpc.OpPurgeTopic, times)
		if name := <-purged; name != "t" {
			t.Errorf("purged %q", name)
		}
	}
}

// An exact tail of one life cannot be had of an older owner: it is not answered by what
// could be another life's.
func TestLevelsTail(t *testing.T) {
	forReleases(t, func(t *testing.T, client, server model.ReleaseLevel) {
		n, c := newNode(t), newCaller(t, client)
		ServeStats(n, server, describer{}, tailer{life1: 42})
		high, err := c.HighWatermark(t.Context(), n.Addr(), "t", life1, 3)
		if both(client, server, featureTail) {
			if err != nil || high != 42 {
				t.Errorf("%d, %v", high, err)
			}
			if _, err := c.HighWatermark(t.Context(), n.Addr(), "t", life2, 3); !errors.Is(err, model.ErrTopicChanged) {
				t.Errorf("another life: %v", err)
			}
		} else if !errors.Is(err, ErrUnsupported) {
			t.Errorf("%d, %v", high, err)
		}
	})
}

// What is remembered about older peers is bounded, and what has passed goes first.
func TestOlderMax(t *testing.T) {
	c := newCaller(t, model.LevelNewest)
	for i := range olderMax {
		c.older.remember("a"+strings.Repeat("x", i%7)+string(rune('a'+i%26))+time.Duration(i).String(), featureRuns)
	}
	if len(c.older.until) != olderMax {
		t.Fatalf("%d remembered", len(c.older.until))
	}
	c.older.remember("one more", featureRuns)
	if len(c.older.until) != olderMax || !c.older.refuses("one more", featureRuns) {
		t.Errorf("%d remembered", len(c.older.until))
	}
	c.clock.Advance(olderFor)
	c.older.remember("later", featureRuns)
	if len(c.older.until) != 1 || !c.older.refuses("later", featureRuns) || c.older.refuses("later", featureMax) || c.older.refuses("one more", featureRuns) {
		t.Errorf("%d remembered", len(c.older.until))
	}
}

// A refusal that is not about trailing data is not taken for one.
func TestOtherRefusalsAreNotOlderPeers(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	answers(t, n, model.ErrInvalid)
	recs := []model.Record{{Payload: []byte("p"), Incarnation: life1}}
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, recs); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("commit: %v", err)
	}
	sent(t, c, noderpc.OpCommitProduceBatch, 1)
	if c.older.refuses(n.Addr(), featureRuns) {
		t.Error("remembered as older")
	}
}
