package users

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

func TestU1CreateAndU6Get(t *testing.T) {
	r := newRig(t)
	got, err := r.Create(ctx, r.root(t), CreateRequest{Username: "ada", Password: "pw", Grants: []model.Grant{produce}})
	must(t, err)
	b, err := json.Marshal(got)
	must(t, err)
	if want := `{"username":"ada","grants":[{"action":"produce","patterns":["orders-*"]}],"created_at_ms":1700000000000,"updated_at_ms":1700000000000}`; string(b) != want {
		t.Fatalf("got %s", b)
	}
	read, err := r.Get(r.root(t), "ada")
	must(t, err)
	if !reflect.DeepEqual(read, got) {
		t.Fatalf("created %+v, read %+v", got, read)
	}
	if c := r.as(t, "ada", "pw"); c.MayProduce("orders-1") != nil || c.MayConsume("orders-1") == nil || c.Admin() {
		t.Fatal("rights")
	}
	_, err = r.Get(r.root(t), "eve")
	wants(t, "U-6", err, model.ErrUserNotFound)
}

func TestU2CreateRefusesValues(t *testing.T) {
	r := newRig(t)
	for what, req := range map[string]CreateRequest{
		"username": {Username: "a b", Password: "pw"}, "no username": {Password: "pw"}, "no password": {Username: "u"},
		"long password": {Username: "u", Password: strings.Repeat("p", 73)},
		"grant":         {Username: "u", Password: "pw", Grants: []model.Grant{{Action: "fly", Patterns: []string{"*"}}}},
		"pattern":       {Username: "u", Password: "pw", Grants: []model.Grant{{Action: "produce", Patterns: []string{"*x"}}}},
	} {
		_, err := r.Create(ctx, r.root(t), req)
		wants(t, what, err, model.ErrInvalid)
		wants(t, what, req.Validate(), model.ErrInvalid)
	}
	if list, err := r.List(r.root(t)); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
}

func TestU3U4U5Create(t *testing.T) {
	r := newRig(t)
	ada, nora := r.add(t, "ada", admin), r.add(t, "nora", produce)
	_, err := r.Create(ctx, nora, CreateRequest{Username: "x", Password: "x"})
	wants(t, "U-3", err, access.DeniedAdmin)
	_, err = r.Create(ctx, ada, CreateRequest{Username: "x", Password: "x", Grants: []model.Grant{admin}})
	wants(t, "U-3 ESC-1", err, access.DeniedEscalation)
	_, err = r.Create(ctx, ada, CreateRequest{Username: "nora", Password: "x"})
	wants(t, "U-4", err, model.ErrUserExists)
	_, err = r.Create(ctx, ada, CreateRequest{Username: "admin", Password: "x"})
	wants(t, "U-4 root", err, model.ErrUserExists)
	_, err = r.Create(ctx, ada, CreateRequest{Username: "Bob", Password: "x", Grants: []model.Grant{produce}})
	must(t, err)
	list, err := r.List(ada)
	must(t, err)
	var names []string
	for _, u := range list {
		names = append(names, u.Username)
	}
	if got := strings.Join(names, " "); got != "Bob ada admin nora" {
		t.Fatal(got)
	}
	_, err = r.List(nora)
	wants(t, "AZ-10 list", err, access.DeniedAdmin)
	_, err = r.Get(nora, "nora")
	wants(t, "AZ-10 get", err, access.DeniedAdmin)
}

func TestU7U8Delete(t *testing.T) {
	r := newRig(t)
	ada, nora := r.add(t, "ada", admin), r.add(t, "nora", produce)
	wants(t, "by a non-admin", r.Delete(ctx, nora, "ada"), access.DeniedAdmin)
	wants(t, "ESC-4", r.Delete(ctx, ada, "admin"), access.DeniedRootDelete)
	wants(t, "ESC-4 by root", r.Delete(ctx, r.root(t), "admin"), access.DeniedRootDelete)
	wants(t, "ESC-5", r.Delete(ctx, ada, "ada"), access.DeniedOwnDelete)
	wants(t, "missing", r.Delete(ctx, ada, "eve"), model.ErrUserNotFound)
	must(t, r.Delete(ctx, ada, "nora"))
	_, err := r.login("nora", "nora")
	wants(t, "U-7 cached credentials", err, model.CredentialsInvalid)
	if r.log.count("its topics still name it") != 0 {
		t.Fatal("warned of topics it did not have")
	}
	wants(t, "again", r.Delete(ctx, ada, "nora"), model.ErrUserNotFound)
}

// olgasTopics makes n topics of a user olga.
func olgasTopics(t *testing.T, r *rig, n int) {
	t.Helper()
	r.add(t, "olga", produce)
	for i := range n {
		_, err := r.store.Propose(ctx, metastore.CreateTopic{Topic: model.Topic{
			Name: fmt.Sprintf("t%02d", i), ID: model.NewIncarnation(), Partitions: 3, Owner: "olga",
		}})
		must(t, err)
	}
}

func TestAZ23DeleteReleasesTopics(t *testing.T) {
	r := newRig(t)
	olgasTopics(t, r, 3)
	must(t, r.Delete(ctx, r.root(t), "olga"))
	r.store.Range(func(v *model.TopicView) bool {
		if v.Owner != "" {
			t.Errorf("%s is %s's", v.Name, v.Owner)
		}
		return true
	})
	if r.log.count("still name it") != 0 {
		t.Fatal(r.log)
	}
	v, _ := r.store.Topic("t00")
	if err := r.add(t, "olga").MayManage(&v.Topic); err != access.DeniedManage {
		t.Fatal("a later user of the name inherits its topics")
	}
}

func TestAZ23DeleteWarnsWhileAMemberCannotRelease(t *testing.T) {
	r := newRig(t, func(o *metastore.Options) { o.Level = model.Level30 })
	olgasTopics(t, r, 22)
	must(t, r.Delete(ctx, r.root(t), "olga"))
	line := r.log.String()
	for _, want := range []string{
		`level=WARN msg="user deleted, but its topics still name it as owner" component=audit`, ` topics="[t00 t01 `, ` t19]" topic_count=22 reason="`, "type 32",
	} {
		if !strings.Contains(line, want) {
			t.Fatalf("no %q in %s", want, line)
		}
	}
	if strings.Contains(line, "t20") {
		t.Fatal("named more than 20")
	}
	if v, ok := r.store.Topic("t00"); !ok || v.Owner != "olga" {
		t.Fatal(v, ok)
	}
	r.add(t, "nobody")
	must(t, r.Delete(ctx, r.root(t), "nobody"))
	if r.log.count("still name it") != 1 {
		t.Fatal("warned of a user without topics")
	}
}

func TestU9U10Grants(t *testing.T) {
	r := newRig(t)
	ada := r.add(t, "ada", admin)
	r.add(t, "nora", produce)
	r.clock.Advance(time.Second)
	consume := model.Grant{Action: model.ActionConsume, Patterns: []string{"*"}}
	got, err := r.SetGrants(ctx, ada, "nora", []model.Grant{consume})
	must(t, err)
	if len(got.Grants) != 1 || got.Grants[0].Action != model.ActionConsume || got.UpdatedAtMS != 1_700_000_001_000 || got.CreatedAtMS != 1_700_000_000_000 {
		t.Fatalf("%+v", got)
	}
	nora := r.as(t, "nora", "nora") // U-9: the password is untouched
	if nora.MayProduce("orders-1") == nil || nora.MayConsume("orders-1") != nil {
		t.Fatal("the next request has the old grants")
	}
	got, err = r.SetGrants(ctx, ada, "nora", []model.Grant{})
	must(t, err)
	if len(got.Grants) != 0 {
		t.Fatalf("%+v", got)
	}
	_, err = r.SetGrants(ctx, ada, "nora", []model.Grant{{Action: "produce"}})
	wants(t, "U-2", err, model.ErrInvalid)
	_, err = r.SetGrants(ctx, ada, "ada", nil)
	wants(t, "U-10 own", err, access.DeniedOwnGrants)
	_, err = r.SetGrants(ctx, ada, "admin", nil)
	wants(t, "U-10 root's", err, access.DeniedRootGrants)
	_, err = r.SetGrants(ctx, ada, "nora", []model.Grant{admin})
	wants(t, "U-10 gives admin", err, access.DeniedEscalation)
	_, err = r.SetGrants(ctx, ada, "eve", []model.Grant{admin})
	wants(t, "U-10 missing", err, model.ErrUserNotFound)
	_, err = r.SetGrants(ctx, nora, "ada", nil)
	wants(t, "by a non-admin", err, access.DeniedAdmin)
	r.add(t, "bea")
	_, err = r.SetGrants(ctx, r.root(t), "bea", []model.Grant{admin})
	must(t, err)
	wants(t, "U-10 a list that keeps admin", errOf(r.SetGrants(ctx, ada, "bea", []model.Grant{admin, produce})), access.DeniedEscalation)
	_, err = r.SetGrants(ctx, ada, "bea", []model.Grant{produce})
	must(t, err)
}

func errOf(_ model.User, err error) error { return err }

func TestU11ToU16Passwords(t *testing.T) {
	r := newRig(t)
	ada, nora := r.add(t, "ada", admin), r.add(t, "nora", produce)
	set := func(by *access.Caller, who, current, next string) error {
		return r.SetPassword(ctx, by, who, PasswordRequest{New: next, Current: current})
	}
	wants(t, "U-16 empty", set(nora, "nora", "nora", ""), model.ErrInvalid)
	wants(t, "U-16 73 bytes", set(nora, "nora", "nora", strings.Repeat("p", 73)), model.ErrInvalid)
	wants(t, "U-13 wrong", set(nora, "nora", "guess", "new"), access.DeniedPassword)
	wants(t, "U-13 missing", set(nora, "nora", "", "new"), access.DeniedPassword)
	wants(t, "U-14 on other", set(nora, "ada", "nora", "new"), access.DeniedAdmin)
	wants(t, "U-14 on nobody", set(nora, "eve", "nora", "new"), access.DeniedAdmin)
	wants(t, "U-14 on root", set(nora, "admin", "nora", "new"), access.DeniedAdmin)
	wants(t, "U-14 admin on root", set(ada, "admin", "", "new"), access.DeniedRootPassword)
	wants(t, "missing", set(ada, "eve", "", "new"), model.ErrUserNotFound)
	before, _, err := r.store.User("nora")
	must(t, err)

	must(t, set(nora, "nora", "nora", "mine")) // U-12
	_, err = r.login("nora", "nora")
	wants(t, "U-12 the old password", err, model.CredentialsInvalid)
	r.as(t, "nora", "mine")
	must(t, set(ada, "nora", "", "hers")) // U-11
	nora = r.as(t, "nora", "hers")
	if nora.MayProduce("orders-1") != nil {
		t.Fatal("a password change lost the grants")
	}
	must(t, set(ada, "ada", "", "ada2")) // U-15
	r.as(t, "ada", "ada2")
	must(t, set(r.root(t), "admin", "", "root2"))
	r.as(t, "admin", "root2")
	after, _, err := r.store.User("nora")
	must(t, err)
	if after.PasswordHash == before.PasswordHash || strings.Contains(r.log.String(), "$2a$") {
		t.Fatal("hashes")
	}
}

func TestESC7GuessesAtTheCurrentPasswordAreThrottled(t *testing.T) {
	r := newRig(t)
	nora := r.add(t, "nora")
	var last error
	for i := range 6 {
		last = r.SetPassword(ctx, nora, "nora", PasswordRequest{New: "new", Current: fmt.Sprint("guess", i)})
	}
	wants(t, "the sixth guess", last, model.ErrAuthThrottled)
	must(t, r.SetPassword(ctx, nora, "nora", PasswordRequest{New: "new", Current: "nora"})) // cached, as her requests are
}

func TestU17NoLeader(t *testing.T) {
	r := newRig(t)
	root := r.root(t)
	r.Manager = NewManager(r.store, r.auth, NewAuthority(AuthorityOptions{Store: leaderless{r.store}, Secured: true}))
	_, err := r.Create(ctx, root, CreateRequest{Username: "ada", Password: "pw"})
	wants(t, "create", err, model.ErrUnavailable)
	wants(t, "grants", errOf(r.SetGrants(ctx, root, "ada", nil)), model.ErrUnavailable)
	wants(t, "password", r.SetPassword(ctx, root, "ada", PasswordRequest{New: "x"}), model.ErrUnavailable)
	wants(t, "delete", r.Delete(ctx, root, "ada"), model.ErrUnavailable)
	_, err = r.List(root) // RT-5: reads are local
	must(t, err)
}

// leaderless is a store whose node does not lead.
type leaderless struct{ *metastore.Store }

func (leaderless) Writable() error { return model.ErrUnavailable }

func TestAUTH13SecurityOffCountsAsRoot(t *testing.T) {
	r := newRig(t)
	r.add(t, "ada", admin)
	off := access.SecurityOff()
	m := NewManager(r.store, r.auth, NewAuthority(AuthorityOptions{Store: r.store}))
	_, err := m.Create(ctx, off, CreateRequest{Username: "bob", Password: "pw", Grants: []model.Grant{admin}})
	must(t, err)
	_, err = m.SetGrants(ctx, off, "ada", []model.Grant{admin, produce})
	must(t, err)
	must(t, m.SetPassword(ctx, off, "admin", PasswordRequest{New: "pw"}))
	must(t, m.Delete(ctx, off, "bob"))
	wants(t, "ESC-4", m.Delete(ctx, off, "admin"), access.DeniedRootDelete)
	wants(t, "ESC-3", errOf(m.SetGrants(ctx, off, "admin", nil)), access.DeniedRootGrants)
}

// TestLeaderChecksEverythingAgain talks to the authority as another node would: what
// that node let through, or made up, is refused.
func TestLeaderChecksEverythingAgain(t *testing.T) {
	r := newRig(t)
	r.add(t, "ada", admin)
	r.add(t, "nora", produce)
	a := r.authority
	hash, err := r.auth.Hash(ctx, "pw")
	must(t, err)
	create := func(caller string, n NewUser) error { return errOf(a.CreateUser(ctx, caller, n)) }
	wants(t, "AZ-22 create", create("eve", NewUser{Username: "x", PasswordHash: hash}), access.DeniedUnknownCaller)
	wants(t, "AZ-22 without a name", create("", NewUser{Username: "x", PasswordHash: hash}), access.DeniedUnknownCaller)
	wants(t, "AZ-22 delete", a.DeleteUser(ctx, "eve", "nora"), access.DeniedUnknownCaller)
	wants(t, "AZ-10", create("nora", NewUser{Username: "x", PasswordHash: hash}), access.DeniedAdmin)
	wants(t, "ESC-1", create("ada", NewUser{Username: "x", PasswordHash: hash, Grants: []model.Grant{admin}}), access.DeniedEscalation)
	wants(t, "username", create("ada", NewUser{Username: "..", PasswordHash: hash}), model.ErrInvalid)
	wants(t, "grants", create("ada", NewUser{Username: "x", PasswordHash: hash, Grants: []model.Grant{{Action: "x"}}}), model.ErrInvalid)
	for _, bad := range []string{"", "password", hash[:59], hash + "x", strings.Replace(hash, "$04$", "$31$", 1)} {
		wants(t, "hash "+bad, create("ada", NewUser{Username: "x", PasswordHash: bad}), model.ErrInvalid)
		if bad != "" {
			wants(t, "hash of an update "+bad, errOf(a.UpdateUser(ctx, "ada", Update{Username: "nora", PasswordHash: bad})), model.ErrInvalid)
		}
	}
	grants := []model.Grant{produce}
	update := func(caller string, u Update) error { return errOf(a.UpdateUser(ctx, caller, u)) }
	wants(t, "both fields", update("ada", Update{Username: "nora", PasswordHash: hash, Grants: &grants}), model.ErrInvalid)
	wants(t, "no field", update("ada", Update{Username: "nora"}), model.ErrInvalid)
	wants(t, "own grants as self", update("nora", Update{Username: "nora", Grants: &grants}), access.DeniedAdmin)
	wants(t, "U-14", update("nora", Update{Username: "ada", PasswordHash: hash}), access.DeniedAdmin)
	wants(t, "ESC-6", update("ada", Update{Username: "admin", PasswordHash: hash}), access.DeniedRootPassword)
	must(t, update("nora", Update{Username: "nora", PasswordHash: hash}))
}

// TestConcurrentChangesOfDifferentFieldsKeepEachOther is section 11: field-scoped
// entries never undo each other.
func TestConcurrentChangesOfDifferentFieldsKeepEachOther(t *testing.T) {
	r := newRig(t)
	r.add(t, "nora", produce)
	root := r.root(t)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			must(t, r.SetPassword(ctx, root, "nora", PasswordRequest{New: "final"}))
		})
		wg.Go(func() {
			_, err := r.SetGrants(ctx, root, "nora", []model.Grant{{Action: model.ActionConsume, Patterns: []string{fmt.Sprint("t", i)}}})
			must(t, err)
		})
	}
	wg.Wait()
	c := r.as(t, "nora", "final")
	consumes := 0
	for i := range 10 {
		if c.MayConsume(fmt.Sprint("t", i)) == nil {
			consumes++
		}
	}
	if consumes != 1 || c.MayProduce("orders-1") == nil {
		t.Fatalf("%d of the grants", consumes)
	}
}

// TestAnAdminThatLosesItsRightsDecidesNothingAfter: two admins strip each other, the
// second while the first one's entry is on its way.
func TestAnAdminThatLosesItsRightsDecidesNothingAfter(t *testing.T) {
	r := newRig(t)
	ada, bea := r.add(t, "ada", admin), r.add(t, "bea", admin)
	slow := &slowStore{Store: r.store, arrived: make(chan struct{}, 2), gate: make(chan struct{})}
	m := NewManager(r.store, r.auth, NewAuthority(AuthorityOptions{Store: slow, Secured: true}))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- errOf(m.SetGrants(ctx, ada, "bea", nil)) }()
	<-slow.arrived
	go func() { second <- errOf(m.SetGrants(ctx, bea, "ada", nil)) }()
	select {
	case <-slow.arrived:
		t.Error("the second change was decided before the first one was applied")
	case <-time.After(50 * time.Millisecond): // as long as it takes to be wrong; a miss cannot fail the test
	}
	close(slow.gate)
	must(t, <-first)
	wants(t, "the loser", <-second, access.DeniedAdmin)
}

// slowStore holds proposals at the gate.
type slowStore struct {
	*metastore.Store
	arrived chan struct{}
	gate    chan struct{}
}

func (s *slowStore) Accept(ctx context.Context, c metastore.Command) (metastore.Result, error) {
	s.arrived <- struct{}{}
	<-s.gate
	return s.Store.Accept(ctx, c)
}

func TestWaitingForATurnEndsWithTheRequest(t *testing.T) {
	r := newRig(t)
	r.authority.turn <- struct{}{} // somebody's change
	gone, leave := context.WithCancel(ctx)
	leave()
	err := r.authority.DeleteUser(gone, "admin", "x")
	wants(t, "waiting", err, model.ErrUnavailable)
	wants(t, "waiting", err, context.Canceled)
	<-r.authority.turn
}
