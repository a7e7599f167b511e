package peer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// stored is a partition that remembers what was committed.
type stored struct {
	mu    sync.Mutex
	topic string
	part  int
	recs  []model.Record
}

func (s *stored) Commit(_ context.Context, topic string, partition int, recs []model.Record) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := int64(len(s.recs))
	s.topic, s.part = topic, partition
	s.recs = append(s.recs, recs...)
	return first, nil
}

// seen is what was committed so far, and the last place.
func (s *stored) seen() (topic string, part int, recs []model.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topic, s.part, s.recs
}

func TestCommit(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	var s stored
	ServeCommits(n, model.LevelNewest, &s)
	recs := []model.Record{
		{Key: []byte("k"), Payload: []byte("one"), AcceptedAt: 5, Incarnation: life1},
		{Payload: []byte("two"), AcceptedAt: 6, Incarnation: life1},
		{Payload: []byte{}, AcceptedAt: 7},
		{Payload: []byte("four"), AcceptedAt: 8, Incarnation: life2},
	}
	for i := range 2 {
		first, err := c.Commit(t.Context(), n.Addr(), "orders", 9, recs)
		if err != nil || first != int64(i*len(recs)) {
			t.Fatalf("commit: %d, %v", first, err)
		}
	}
	if topic, p, got := s.seen(); topic != "orders" || p != 9 || !reflect.DeepEqual(got[:4], recs) || !reflect.DeepEqual(got[4:], recs) {
		t.Errorf("%s/%d holds %+v", topic, p, got)
	}
	// op 10, which this release only serves
	var e noderpc.Encoder
	e.AppendStr("orders")
	e.AppendI32(3)
	e.AppendOptBytes([]byte("k"))
	e.AppendI64(5)
	e.AppendBytes([]byte("v"))
	e.AppendStr(string(life2))
	res, err := c.wire.Call(t.Context(), n.Addr(), noderpc.OpCommitProduce, e)
	if err != nil || res.Status != 200 || hexOf(res.Body) != "0000000000000008" {
		t.Fatalf("one record: %+v, %v", res, err)
	}
	_, p, all := s.seen()
	if got := all[8]; p != 3 || !reflect.DeepEqual(got, model.Record{Key: []byte("k"), Payload: []byte("v"), AcceptedAt: 5, Incarnation: life2}) {
		t.Errorf("one record: %+v", got)
	}
}

// Batches at the bound go out, one record always does, and more is refused unsent.
func TestCommitBytesMax(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	var s stored
	ServeCommits(n, model.LevelNewest, &s)
	empty := CommitSize(&model.Record{})
	at := []model.Record{{Payload: make([]byte, CommitBytesMax/2-empty)}, {Payload: make([]byte, CommitBytesMax/2-empty)}}
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, at); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, []model.Record{{Payload: make([]byte, CommitBytesMax+1)}}); err != nil {
		t.Errorf("one record: %v", err)
	}
	if got := c.wire.ops(); len(got) != 2 {
		t.Errorf("sent %v", got)
	}
	at[1].Payload = append(at[1].Payload, 1)
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, at); !errors.Is(err, model.ErrTooLarge) {
		t.Errorf("over the bound: %v", err)
	}
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 0, nil); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("no records: %v", err)
	}
	if _, err := c.Commit(t.Context(), n.Addr(), "t", 1<<31, one()); !errors.Is(err, noderpc.ErrPartition) {
		t.Errorf("partition past its field: %v", err)
	}
	if got := c.wire.ops(); got != nil {
		t.Errorf("refused, but sent %v", got)
	}
}

// A commit whose caller is gone before it starts reaches the commit path with its context
// ended, which refuses it.
func TestCommitOfACallerWhoLeft(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	entered, left := make(chan struct{}), make(chan error, 1)
	ServeCommits(n, model.LevelNewest, commits(func(ctx context.Context, _ string, _ int, _ []model.Record) (int64, error) {
		close(entered)
		<-ctx.Done()
		left <- ctx.Err()
		return 0, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if _, err := c.Commit(ctx, n.Addr(), "t", 0, one()); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreached) {
		t.Errorf("commit: %v", err)
	}
	if err := <-left; err == nil {
		t.Error("the owner did not hear of it")
	}
}

// Concurrent commits share nothing: recycled buffers carry no other's records.
func TestConcurrentCommits(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	ServeCommits(n, model.LevelNewest, commits(func(_ context.Context, topic string, p int, recs []model.Record) (int64, error) {
		for i, r := range recs {
			if want := fmt.Sprintf("%s/%d/%d", topic, p, i); string(r.Payload) != want || r.Incarnation != life1 {
				return 0, fmt.Errorf("%w: %q, want %q", model.ErrConflict, r.Payload, want)
			}
		}
		return int64(len(recs)), nil
	}))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := 1; i <= 20; i++ {
				recs := make([]model.Record, i)
				for k := range recs {
					recs[k] = model.Record{Payload: fmt.Appendf(nil, "t%d/%d/%d", g, i, k), Incarnation: life1}
				}
				if got, err := c.Commit(t.Context(), n.Addr(), fmt.Sprintf("t%d", g), i, recs); err != nil || got != int64(i) {
					t.Errorf("%d/%d: %d, %v", g, i, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// The owner keeps what it stored, for its log caches it: a request's body, which the next
// request is read into, shows in none of it.
func TestCommittedRecordsOutliveTheRequest(t *testing.T) {
	for _, op := range []noderpc.Op{noderpc.OpCommitProduceBatch, noderpc.OpCommitProduce} {
		var n captured
		var kept []model.Record
		ServeCommits(&n, model.LevelNewest, commits(func(_ context.Context, _ string, _ int, recs []model.Record) (int64, error) {
			kept = append(kept, recs...)
			return 0, nil
		}))
		var e noderpc.Encoder
		e.AppendStr("orders")
		e.AppendI32(1)
		if op == noderpc.OpCommitProduceBatch {
			e.AppendU32(1)
		}
		e.AppendOptBytes([]byte("key"))
		e.AppendI64(5)
		e.AppendBytes([]byte("payload"))
		if res := n.handlers[op](t.Context(), e); res.Status != 200 {
			t.Fatalf("%s: %d %s", op, res.Status, res.Body)
		}
		for i := range e {
			e[i] = 'x'
		}
		if len(kept) != 1 || string(kept[0].Key) != "key" || string(kept[0].Payload) != "payload" {
			t.Errorf("%s: kept %+v", op, kept)
		}
	}
}
