package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// commits serves commits with a function.
type commits func(ctx context.Context, topic string, partition int, recs []model.Record) (int64, error)

func (f commits) Commit(ctx context.Context, topic string, partition int, recs []model.Record) (int64, error) {
	return f(ctx, topic, partition, recs)
}

// answers serves commits that fail with err.
func answers(t *testing.T, n *node, err error) {
	t.Helper()
	ServeCommits(n, model.LevelNewest, commits(func(context.Context, string, int, []model.Record) (int64, error) { return 0, err }))
}

// one is the smallest batch.
func one() []model.Record { return []model.Record{{Payload: []byte("p")}} }

// Every sentinel that may cross arrives as itself, with the status, code and text the API
// answers for it.
func TestErrorsCross(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	for _, x := range []struct {
		err    error // wrapped in what inner floors add
		status int
		code   string
		text   string
	}{
		{model.ErrNoLease, 410, "lease_gone", "receipt handle no longer matches an active reservation"},
		{model.ErrTopicNotFound, 404, "topic_not_found", "topic not found"},
		{model.ErrUserNotFound, 404, "user_not_found", "user not found"},
		{model.ErrUserExists, 409, "user_exists", "user already exists"},
		{model.ErrDiskReserve, 503, "disk_reserve", "disk almost full"},
		{model.ErrBadHandle, 400, "invalid_receipt_handle", "invalid receipt handle"},
		{model.ErrTooLarge, 413, "message_too_large", "message too large"},
		{model.ErrDelayedChild, 409, "delayed_child", "direct produce to a delayed child topic is not allowed"},
		{model.ErrNotOwner, 421, "not_owner", "this node does not own the requested partition"},
		{model.ErrUnreadable, 410, "record_unreadable", "record is unreadable"},
		{&model.AgedOutError{Offset: 3, Oldest: 17}, 410, "offset_aged_out", "offset 3 aged out of retention (oldest retained: 17)"},
		{model.ErrNotLinked, 404, "not_linked", "no such fan-out link"},
		{model.ErrTopicExists, 409, "topic_exists", "topic already exists"},
		{model.ErrTopicChanged, 409, "topic_changed", "topic changed since it was read"},
		{fmt.Errorf("%w: Orders", model.ErrNameTaken), 409, "topic_name_taken", "topic name differs from an existing one only by case: Orders"},
		{fmt.Errorf("%w: 2, not 3", model.ErrSchemaVersion), 409, "schema_version_conflict", "schema version conflict: 2, not 3"},
		{fmt.Errorf("%w: it has children", model.ErrConflict), 409, "conflict", "conflict: it has children"},
		{fmt.Errorf("%w: partition out of range", model.ErrInvalid), 400, "invalid_argument", "invalid argument: partition out of range"},
		{model.ErrAllDraining, 503, "all_members_draining", model.ErrAllDraining.Error()},
		{model.ErrSchemaBusy, 503, "schema_busy", "schema: validation capacity busy, retry"},
		{model.ErrShuttingDown, 503, "shutting_down", "shutting down"},
		{model.ErrUnavailable, 503, "control_plane_unavailable", "control plane temporarily unavailable"},
		{model.ErrNotLeader, 421, "not_leader", "not the metastore leader"},
		{model.ErrOutcomeUnknown, 503, "outcome_unknown", "control plane temporarily unavailable: the change may still be applied, read it back before retrying"},
		{model.ErrIncarnation, 412, "incarnation", "records were accepted for another topic incarnation"},
		{&model.HeldBackError{EntryType: 33, Name: "x", Reason: "narad-2"}, 412, "old_release", "not every cluster member applies raft entry type 33 (x): narad-2"},
		{model.ErrPurgeDeferred, 503, "purge_deferred", model.ErrPurgeDeferred.Error()},
		{model.ErrTrailingData, 400, "trailing_data", "trailing data"},
		{model.ErrOlderRelease, 409, "older_release", "the joiner runs an older release than the cluster"},
		{model.ErrMemberRemoved, 409, "member_removed", "member was decommissioned"},
		{model.ErrMemberNotFound, 404, "member_not_found", "member not found"},
	} {
		t.Run(x.code, func(t *testing.T) {
			err := x.err
			if _, structured := err.(interface{ Is(error) bool }); !structured {
				err = fmt.Errorf("partition orders/3: %w", err)
			}
			answers(t, n, err)
			_, got := c.Commit(t.Context(), n.Addr(), "orders", 3, one())
			var refused *StatusError
			if !errors.As(got, &refused) {
				t.Fatalf("commit: %v", got)
			}
			if refused.Status != x.status || refused.Code != x.code || refused.Text != x.text || got.Error() != x.text {
				t.Errorf("%d %s %q", refused.Status, refused.Code, refused.Text)
			}
			for _, r := range refusals {
				want := errors.Is(err, r.is)
				if got := errors.Is(got, r.is); got != want {
					t.Errorf("Is(%v) = %v, want %v", r.is, got, want)
				}
			}
			if errors.Is(got, ErrUnreached) || !bytes.HasSuffix(refused.Body, []byte("}\n")) || refused.ContentType != "application/json" {
				t.Errorf("body %q of type %q", refused.Body, refused.ContentType)
			}
		})
	}
	if strings.Contains(n.logs.String(), "peer request failed") {
		t.Errorf("a refusal that says why was logged:\n%s", n.logs.String())
	}
}

// The row of each sentinel is the first that matches it: none hides another.
func TestRefusalsHideNone(t *testing.T) {
	for _, r := range refusals {
		if e := refuse(noderpc.OpConsume, r.is); e.Code != r.code {
			t.Errorf("%v is refused with %s, want %s", r.is, e.Code, r.code)
		}
	}
}

// Errors with more than a text come out whole.
func TestErrorsCrossWhole(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	answers(t, n, fmt.Errorf("read: %w", &model.AgedOutError{Offset: 3, Oldest: 17}))
	_, err := c.Commit(t.Context(), n.Addr(), "t", 0, one())
	var aged *model.AgedOutError
	if !errors.As(err, &aged) || *aged != (model.AgedOutError{Offset: 3, Oldest: 17}) {
		t.Errorf("aged out: %v, %+v", err, aged)
	}
	answers(t, n, model.ErrUnreadable)
	_, err = c.Commit(t.Context(), n.Addr(), "t", 0, one())
	if errors.As(err, &aged) {
		t.Errorf("an unreadable record aged out: %+v", aged)
	}
	answers(t, n, model.Forbidden("grant create on t required"))
	_, err = c.Commit(t.Context(), n.Addr(), "t", 0, one())
	var forbidden model.Forbidden
	var refused *StatusError
	if !errors.As(err, &forbidden) || forbidden != "grant create on t required" || !errors.As(err, &refused) || refused.Status != 403 {
		t.Errorf("forbidden: %v", err)
	}
	answers(t, n, &StatusError{Status: 418, Code: "teapot", Text: "short"})
	_, err = c.Commit(t.Context(), n.Addr(), "t", 0, one())
	if !errors.As(err, &refused) || refused.Status != 418 || refused.Code != "teapot" || refused.Text != "short" {
		t.Errorf("a refusal of the handler's own: %v", err)
	}
	third := refusalOf(noderpc.Response{Status: 421, Body: []byte(`{"error":"not the metastore leader","leader_addr":"a:1"}`)})
	answers(t, n, fmt.Errorf("ask the leader: %w", third))
	_, err = c.Commit(t.Context(), n.Addr(), "t", 0, one())
	if !errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrNotLeader) {
		t.Errorf("a third node's refusal: %v", err)
	}
}

// A failure without a name says nothing to the caller, and why to this node's log.
func TestFailuresAreLoggedWhereTheyHappen(t *testing.T) {
	n, c := newNode(t), newCaller(t, model.LevelNewest)
	answers(t, n, errors.New("write /data/topics/t/p00000: input/output error"))
	_, err := c.Commit(t.Context(), n.Addr(), "t", 0, one())
	var refused *StatusError
	if !errors.As(err, &refused) || refused.Status != 500 || refused.Text != "commit_produce_batch failed" || strings.Contains(string(refused.Body), "data") {
		t.Errorf("answered %v", err)
	}
	if !strings.Contains(n.logs.String(), "input/output error") || !strings.Contains(n.logs.String(), "op=commit_produce_batch") {
		t.Errorf("logged %q", n.logs.String())
	}
	if errors.Is(err, model.ErrUnavailable) || errors.Is(err, model.ErrInvalid) {
		t.Errorf("a 500 matches a sentinel: %v", err)
	}
}

// Refusals of releases without codes are told by their text, and else by their status.
func TestRefusalsWithoutCode(t *testing.T) {
	for _, x := range []struct {
		status int
		body   string
		is     error
		not    error
	}{
		{421, `{"error":"not the metastore leader","leader_id":"n","leader_addr":"a:1"}`, model.ErrNotLeader, model.ErrNotOwner},
		{421, `{"error":"moved"}`, model.ErrNotOwner, model.ErrNotLeader},
		{410, `{"error":"offset 1 aged out of retention (oldest retained: 2)"}`, model.ErrOffsetGone, model.ErrNoLease},
		{410, `{"error":"record is unreadable"}`, model.ErrUnreadable, model.ErrNoLease},
		{410, `gone`, model.ErrNoLease, model.ErrUnreadable},
		{404, `{"error":"nothing here"}`, model.ErrTopicNotFound, model.ErrUserNotFound},
		{404, `{"error":"user not found"}`, model.ErrUserNotFound, model.ErrTopicNotFound},
		{503, `{"error":"node busy"}`, model.ErrUnavailable, model.ErrShuttingDown},
		{503, ``, model.ErrUnavailable, model.ErrShuttingDown},
		{412, `{"error":"x"}`, model.ErrIncarnation, model.ErrHeldBack},
		{503, `{"error":"x","code":"of a later release"}`, model.ErrUnavailable, model.ErrShuttingDown},
		{400, `{"error":"trailing data after the last field"}`, model.ErrTrailingData, model.ErrInvalid},
		{400, `{"error":"unsupported rpc operation"}`, ErrUnsupported, model.ErrTrailingData},
	} {
		e := refusalOf(noderpc.Response{Status: x.status, Body: []byte(x.body)})
		if !errors.Is(e, x.is) || errors.Is(e, x.not) {
			t.Errorf("%d %s: is %v: %v, is %v: %v", x.status, x.body, x.is, errors.Is(e, x.is), x.not, errors.Is(e, x.not))
		}
		if e.Text == "" || string(e.Body) != x.body {
			t.Errorf("%d %s: text %q, body %q", x.status, x.body, e.Text, e.Body)
		}
	}
}

// A text is kept short, and a hint within its bounds, whatever a peer sends.
func TestRefusalsAreBounded(t *testing.T) {
	long := strings.Repeat("x", refusalBytesMax)
	e := refusalOf(noderpc.Response{Status: 400, Body: []byte(long + "x")})
	if len(e.Text) != refusalTextMax {
		t.Errorf("a text of %d bytes", len(e.Text))
	}
	e = refusalOf(noderpc.Response{Status: 421, Body: []byte(`{"error":"x","leader_addr":"` + strings.Repeat("a", addrBytesMax+1) + `"}`)})
	if e.LeaderAddr != "" {
		t.Errorf("a hint of %d bytes", len(e.LeaderAddr))
	}
}

// Nothing was delivered to a node that is not there, or by a call whose time is up.
func TestUnreached(t *testing.T) {
	c := newCaller(t, model.LevelNewest)
	n := newNode(t)
	addr := n.Addr()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Commit(ctx, addr, "t", 0, one()); !errors.Is(err, ErrUnreached) || !errors.Is(err, context.Canceled) {
		t.Errorf("after its time: %v", err)
	}
	if _, err := c.Commit(t.Context(), addr, "t", 0, one()); !errors.Is(err, ErrUnreached) {
		t.Errorf("nobody there: %v", err)
	}
	if err := c.Settle(t.Context(), addr, "t", model.Handle{Nonce: 1}, model.Ack); !errors.Is(err, ErrUnreached) {
		t.Errorf("settle: %v", err)
	}
}
