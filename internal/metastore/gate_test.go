package metastore

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

func memberAt(id, build string, types int) model.Member {
	return model.Member{ID: id, Build: build, EntryTypes: types, Status: model.MemberAlive}
}

// Who counts, and as what: every server and every member, whatever its state.
func TestHolders(t *testing.T) {
	dead, draining := memberAt("b", "v3.0.1", 0), memberAt("c", "v3.1.0", 32)
	dead.Status, draining.Draining = model.MemberDead, true
	for _, c := range []struct {
		name    string
		servers []Server
		members []model.Member
		newest  EntryType
		first   string // the first below NewestType
	}{
		{"alone", []Server{{ID: "a"}}, nil, 37, ""},
		{"self counts as its own release, whatever its record", []Server{{ID: "a"}}, []model.Member{memberAt("a", "", 0)}, 37, ""},
		{"all newest", []Server{{ID: "a"}, {ID: "b"}}, []model.Member{memberAt("a", "v", 37), memberAt("b", "v", 37)}, 37, ""},
		{"newer than this", []Server{{ID: "a"}, {ID: "b"}}, []model.Member{memberAt("b", "v", 99)}, 37, ""},
		{"a dead member that reported nothing", []Server{{ID: "a"}}, []model.Member{dead}, 22, `member "b" (build v3.0.1) applies entry types up to 22`},
		{"a draining member", []Server{{ID: "a"}, {ID: "c"}}, []model.Member{draining}, 32, `member "c" (build v3.1.0) applies entry types up to 32`},
		{"a server without record", []Server{{ID: "a"}, {ID: "d", Voter: false}}, nil, 22, `raft server "d" has no member record yet`},
		{"the first of several", []Server{{ID: "a"}, {ID: "0"}}, []model.Member{dead, draining}, 22, `raft server "0" has no member record yet`},
		{"no build", []Server{{ID: "a"}}, []model.Member{memberAt("b", "", 5)}, 22, `member "b" (build not reported) applies entry types up to 22`},
	} {
		newest, first := NewestType, ""
		for _, h := range holders(c.servers, c.members, "a", NewestType) {
			newest = min(newest, h.newest)
			if first == "" && h.newest < NewestType {
				first = h.why
			}
		}
		if newest != c.newest || first != c.first {
			t.Errorf("%s: %d, %q; want %d, %q", c.name, newest, first, c.newest, c.first)
		}
	}
}

func TestNewestOfLevels(t *testing.T) {
	for l, want := range map[model.ReleaseLevel]EntryType{model.Level30: 22, model.Level31: 32, model.Level32: 37, model.LevelNewest: NewestType} {
		if got := newestOf(l); got != want {
			t.Errorf("level %d applies up to %d, want %d", l, got, want)
		}
	}
}

// gatedStore is a lone leader whose member list names another member.
func gatedStore(t *testing.T, other model.Member) (*Store, *clock.Fake, *syncBuffer) {
	t.Helper()
	var log syncBuffer
	s := openStore(t, t.TempDir(), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	clk := clock.NewFake(time.Unix(1000, 0))
	s.gate.lines = telemetry.NewLimiter(clk, gateLineEvery)
	mustPropose(t, s, RegisterMember{ID: other.ID, At: 5, Build: other.Build, EntryTypes: other.EntryTypes})
	return s, clk, &log
}

// applied is the entry types a store's log holds since an index.
func typesSince(t *testing.T, s *Store, from uint64) (types []EntryType) {
	t.Helper()
	last, err := s.logs.LastIndex()
	must(t, err)
	for i := from + 1; i <= last; i++ {
		if c := commandAt(t, s, i); c != nil {
			types = append(types, c.Type())
		}
	}
	return types
}

// Every type of 3.1 falls back to base entries while a member runs 3.0, after the
// checks it would have made, and is used from the first report on.
func TestFallbackToBaseEntries(t *testing.T) {
	ctx := context.Background()
	s, clk, log := gatedStore(t, memberAt("old", "v3.0.1", 0))
	propose := func(c Command, want error, types ...EntryType) {
		t.Helper()
		from, err := s.logs.LastIndex()
		must(t, err)
		if _, err := s.Propose(ctx, c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", c.Type(), err, want)
		}
		got := typesSince(t, s, from)
		if len(got) != len(types) {
			t.Errorf("%s was logged as %v, want %v", c.Type(), got, types)
			return
		}
		for i := range got {
			if got[i] != types[i] {
				t.Errorf("%s was logged as %v, want %v", c.Type(), got, types)
			}
		}
	}
	propose(linked("p", idA, schema(1), nil), nil, TypeCreateTopic, TypePutSchema)
	propose(linked("P", idB, nil, nil), model.ErrNameTaken)
	propose(linked("c", idB, nil, &ParentLink{Name: "p", ID: idB}), model.ErrTopicChanged)
	propose(linked("c", idB, nil, &ParentLink{Name: "p", ID: idA, Epoch: "e"}), nil, TypeCreateTopic, TypeAttachChild)
	propose(AlterTopic{Name: "p", ID: idB, MaxInFlight: ptr(3)}, model.ErrTopicChanged)
	propose(AlterTopic{Name: "p", ID: idA, MaxInFlight: ptr(3)}, nil, TypeUpdateTopic)
	propose(PutSchemaVersion{Topic: "p", ID: idA, Version: 2, Schema: schema(2)}, nil, TypePutSchema)
	propose(UnlinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB}, nil, TypeDetachChild)
	propose(LinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idA}, model.ErrTopicChanged)
	propose(LinkChild{Parent: "p", ParentID: idA, Child: "c", ChildID: idB, Epoch: "f"}, nil, TypeAttachChild)
	propose(InsertPlacement{Topic: "p", ID: idA, First: 2, Owners: []string{node}}, nil, TypePlacePartitions)
	propose(MarkSilent{ID: "old", HeartbeatAt: 4}, model.ErrConflict)
	propose(MarkSilent{ID: "old", HeartbeatAt: 5}, nil, TypeMarkDead)
	propose(PrunePlacement{Topic: "p", Partition: 9}, model.ErrHeldBack)
	propose(CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, model.ErrHeldBack)
	propose(CreateUser{Username: "u"}, nil, TypeCreateUser)
	propose(UpdateTopic{Name: "p", Owner: ptr("u")}, nil, TypeUpdateTopic)
	propose(RemoveUser{Username: "nobody"}, model.ErrUserNotFound)
	propose(RemoveUser{Username: "u"}, nil, TypeDeleteUser)
	propose(RemoveTopic{Name: "c", ID: idA}, model.ErrTopicChanged)
	propose(RemoveTopic{Name: "c", ID: idB}, nil, TypeDeleteTopic)

	held := "metastore: not using a new raft entry type yet; proposing the entries every member applies"
	count := func(what string) int {
		n := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, held) && strings.Contains(line, what) {
				n++
			}
		}
		return n
	}
	if n := count("entry_type=23 "); n != 1 {
		t.Errorf("type 23 says %d times within a minute why it is held back", n)
	}
	clk.Advance(gateLineEvery)
	propose(linked("q", idA, nil, nil), nil, TypeCreateTopic)
	if n := count("entry_type=23 "); n != 2 || count(`member \"old\" (build v3.0.1) applies entry types up to 22`) == 0 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	for _, want := range []string{"user deleted, but its topics still name it as owner", "component=audit", "count=1", "topics=[p]", "old"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log of the user delete lacks %q", want)
		}
	}

	mustPropose(t, s, RegisterMember{ID: "old", At: 6, Build: "v3.2.0", EntryTypes: int(NewestType)})
	for range 2 {
		propose(AlterTopic{Name: "p", ID: idA, MaxInFlight: ptr(4)}, nil, TypeAlterTopic)
	}
	propose(PrunePlacement{Topic: "p", Partition: 9}, nil, TypePrunePlacement)
	propose(CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)}, nil, TypeCreateRemote)
	if n := strings.Count(log.String(), "metastore: every member applies raft entry type 24; using compare-and-set topic update"); n != 1 {
		t.Errorf("the first use of type 24 is said %d times", n)
	}
}

// A create whose link is refused by the base entries leaves no topic behind.
func TestFallbackTakesACreateBack(t *testing.T) {
	s, _, _ := gatedStore(t, memberAt("old", "", 0))
	mustPropose(t, s, linked("p", idA, []byte(`{"a": 1.0}`), nil))
	// The same history as a JSON value, in other bytes: type 23 takes it, type 6 does not.
	_, err := s.Propose(context.Background(), linked("c", idB, []byte(`{"a":1}`), &ParentLink{Name: "p", ID: idA, Epoch: "e"}))
	if !errors.Is(err, model.ErrConflict) {
		t.Errorf("answered %v", err)
	}
	if _, ok := s.Topic("c"); ok {
		t.Error("half a create is left")
	}
}

func TestRemotesAreRefusedByName(t *testing.T) {
	s, _, _ := gatedStore(t, memberAt("old", "v3.1.0", 32))
	_, err := s.Propose(context.Background(), CreateRemote{Remote: remoteNamed("dr"), Salt: salt(1)})
	var held *model.HeldBackError
	if !errors.As(err, &held) || held.EntryType != 35 || len(held.Members) != 1 || held.Members[0] != "old" {
		t.Fatalf("answered %+v", err)
	}
	want := "not every cluster member runs a release that applies the remote Raft entry types; upgrade or remove the member named here: " +
		`member "old" (build v3.1.0) applies entry types up to 32`
	if held.Error() != want {
		t.Errorf("%q, want %q", held, want)
	}
	if err := s.Applies(TypeRemoveUser); err != nil {
		t.Errorf("3.1 is held back: %v", err)
	}
}

// A joiner is refused while it applies less than every member on record, or less
// than the cluster has used; a server of the configuration never is.
func TestJoinersOfAnOlderRelease(t *testing.T) {
	s, clk, log := gatedStore(t, memberAt("other", "v3.1.0", 32))
	check := func(what string, types int, want error) {
		t.Helper()
		if err := s.CheckJoiner("joiner", types); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("a report of nothing", 0, model.ErrOlderRelease)
	check("as old as the oldest", 32, nil)
	check("newest", 37, nil)
	if err := s.CheckJoiner(node, 0); err != nil {
		t.Errorf("a server of the configuration: %v", err)
	}
	mustPropose(t, s, RegisterMember{ID: "other", At: 6})
	check("a member runs 3.0 too", 0, nil)
	mustPropose(t, s, RegisterMember{ID: "other", At: 7, EntryTypes: 32})
	if _, err := s.Propose(context.Background(), AlterTopic{Name: "nope"}); !errors.Is(err, model.ErrTopicNotFound) {
		t.Error(err) // refused counts: the type is in the log
	}
	mustPropose(t, s, RegisterMember{ID: "other", At: 8})
	check("the cluster has used type 24", 22, model.ErrOlderRelease)
	const line = "cluster join refused: the joiner runs an older release than the cluster"
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("said %d times within a minute", n)
	}
	clk.Advance(gateLineEvery)
	check("again", 22, model.ErrOlderRelease)
	for _, want := range []string{"id=joiner", "joiner_entry_types=22", "member_entry_types_min=22", "cluster_entry_type_used=24"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log lacks %q", want)
		}
	}
}
