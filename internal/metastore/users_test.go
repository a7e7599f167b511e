package metastore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/narad-mq/narad/internal/model"
)

func mustUser(t *testing.T, s *Store, name string) model.Account {
	t.Helper()
	u, ok, err := s.User(name)
	if err != nil || !ok {
		t.Fatalf("user %s: %v %v", name, ok, err)
	}
	return u
}

func TestUsersVersionMovesWithEveryEntryOfUsersAndNoOther(t *testing.T) {
	s := openStore(t, t.TempDir())
	last := s.UsersVersion()
	moved := func(want bool, c Command) {
		t.Helper()
		mustPropose(t, s, c)
		now := s.UsersVersion()
		if (now != last) != want {
			t.Fatalf("%s: version %d after %d", c.Type(), now, last)
		}
		last = now
	}
	moved(true, CreateUser{Username: "ada", PasswordHash: "h1", At: 1})
	moved(true, SetPassword{Username: "ada", PasswordHash: "h2", At: 2})
	moved(true, SetGrants{Username: "ada", Grants: []model.Grant{{Action: model.ActionAdmin}}, At: 3})
	if u := mustUser(t, s, "ada"); u.PasswordHash != "h2" || len(u.Grants) != 1 || u.CreatedAtMS != 1 || u.UpdatedAtMS != 3 {
		t.Fatalf("%+v", u)
	}
	moved(false, create("orders"))
	if _, err := s.Propose(context.Background(), CreateUser{Username: "ada"}); !errors.Is(err, model.ErrUserExists) || s.UsersVersion() != last {
		t.Fatalf("a refused entry: %v, version %d after %d", err, s.UsersVersion(), last)
	}
	moved(true, DeleteUser{Username: "ada"})
	if _, ok, err := s.User("ada"); ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestU5UsersAreListedByName(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	if any, err := s.HasUsers(); any || err != nil {
		t.Fatal(any, err)
	}
	for _, name := range []string{"bob", "Zoe", "ada", "a"} {
		mustPropose(t, s, CreateUser{Username: name, PasswordHash: "secret", At: 7})
	}
	s.Close()
	s = openStore(t, dir) // they survive
	users, err := s.Users()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range users {
		names = append(names, u.Username)
		if u.CreatedAtMS != 7 || u.Root {
			t.Fatalf("%+v", u)
		}
	}
	if !slices.Equal(names, []string{"Zoe", "a", "ada", "bob"}) {
		t.Fatal(names)
	}
	if any, err := s.HasUsers(); !any || err != nil {
		t.Fatal(any, err)
	}
}

func TestROOT1OnlyTheFirstUserCanBeTheSeed(t *testing.T) {
	s := openStore(t, t.TempDir())
	mustPropose(t, s, CreateUser{Username: "admin", PasswordHash: "h", Root: true, At: 1})
	if u := mustUser(t, s, "admin"); !u.Root {
		t.Fatalf("%+v", u)
	}
	mustPropose(t, s, CreateUser{Username: "ada", PasswordHash: "h", At: 1})
	for _, name := range []string{"admin", "other"} {
		if _, err := s.Propose(context.Background(), CreateUser{Username: name, Root: true}); !errors.Is(err, model.ErrUserExists) {
			t.Fatalf("a second root %q: %v", name, err)
		}
	}
	mustPropose(t, s, SetGrants{Username: "admin", At: 2})
	mustPropose(t, s, SetPassword{Username: "admin", PasswordHash: "h2", At: 2})
	if u := mustUser(t, s, "admin"); !u.Root {
		t.Fatal("an update dropped root")
	}
}

// TestUserEntryBytes pins what a log holds: the next release replays it.
func TestUserEntryBytes(t *testing.T) {
	for _, c := range []struct {
		command Command
		bytes   string
	}{
		{CreateUser{Username: "ada", PasswordHash: "h", Grants: []model.Grant{{Action: "produce", Patterns: []string{"a*"}}}, At: 5},
			"\x12" + `{"username":"ada","password_hash":"h","grants":[{"action":"produce","patterns":["a*"]}],"at":5}`},
		{CreateUser{Username: "admin", PasswordHash: "h", Root: true, At: 5}, "\x12" + `{"username":"admin","password_hash":"h","root":true,"at":5}`},
		{SetPassword{Username: "ada", PasswordHash: "h", At: 5}, "\x13" + `{"username":"ada","password_hash":"h","at":5}`},
		{SetGrants{Username: "ada", Grants: []model.Grant{{Action: "admin"}}, At: 5}, "\x14" + `{"username":"ada","grants":[{"action":"admin"}],"at":5}`},
		{DeleteUser{Username: "ada"}, "\x15" + `{"username":"ada"}`},
	} {
		b, err := encodeEntry(c.command)
		if err != nil || string(b) != c.bytes {
			t.Errorf("%s: %q, want %q, %v", c.command.Type(), b, c.bytes, err)
		}
	}
}

// TestRestoredUsersMoveTheVersion: a snapshot replaces every user at once.
func TestRestoredUsersMoveTheVersion(t *testing.T) {
	s := openStore(t, t.TempDir())
	mustPropose(t, s, CreateUser{Username: "ada", PasswordHash: "h", At: 1})
	if err := s.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	snaps, err := raft.NewFileSnapshotStore(s.self.Dir, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	_, image, err := snaps.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	before := s.UsersVersion()
	if err := s.fsm.Restore(image); err != nil {
		t.Fatal(err)
	}
	if s.UsersVersion() == before {
		t.Fatal("the version stands")
	}
	mustUser(t, s, "ada")
}
