package users

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logBuffer is a concurrent buffer.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) count(text string) int { return strings.Count(l.String(), text) }

func openStore(t testing.TB, edit ...func(*metastore.Options)) *metastore.Store {
	t.Helper()
	o := metastore.Options{Dir: t.TempDir(), NodeID: "narad-0", BindAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:7942"}
	for _, f := range edit {
		f(&o)
	}
	store, err := metastore.Open(ctx, o)
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	must(t, store.WaitReady(wait))
	return store
}

// rig is one secured node: the user manager over a real metastore and bcrypt.
type rig struct {
	*Manager
	authority *Authority
	auth      *access.Authenticator
	store     *metastore.Store
	clock     *clock.Fake
	log       *logBuffer
}

func newRig(t testing.TB, edit ...func(*metastore.Options)) *rig {
	t.Helper()
	r := &rig{clock: clock.NewFake(time.Unix(1_700_000_000, 0)), log: &logBuffer{}}
	logger := slog.New(slog.NewTextHandler(r.log, nil))
	r.store = openStore(t, append(edit, func(o *metastore.Options) { o.Logger = logger })...)
	r.auth = access.New(access.Options{Users: r.store, Clock: r.clock, Logger: logger, Cost: bcrypt.MinCost})
	t.Cleanup(func() { must(t, r.auth.Close()) })
	r.authority = NewAuthority(AuthorityOptions{Store: r.store, Secured: true, Clock: r.clock})
	r.Manager = NewManager(r.store, r.auth, r.authority)
	hash, err := r.auth.Hash(ctx, "root")
	must(t, err)
	_, err = r.store.Propose(ctx, metastore.CreateUser{Username: "admin", PasswordHash: hash, Root: true, At: 1})
	must(t, err)
	return r
}

func (r *rig) login(username, password string) (*access.Caller, error) {
	return r.auth.Authenticate(ctx, "Basic "+base64.StdEncoding.EncodeToString([]byte(username+":"+password)))
}

// as is a caller that logged in.
func (r *rig) as(t testing.TB, username, password string) *access.Caller {
	t.Helper()
	c, err := r.login(username, password)
	if err != nil {
		t.Fatalf("log in as %s: %v", username, err)
	}
	return c
}

func (r *rig) root(t testing.TB) *access.Caller { return r.as(t, "admin", "root") }

// add creates a user as root; its password is its name.
func (r *rig) add(t testing.TB, name string, grants ...model.Grant) *access.Caller {
	t.Helper()
	_, err := r.Create(ctx, r.root(t), CreateRequest{Username: name, Password: name, Grants: grants})
	must(t, err)
	return r.as(t, name, name)
}

// wants requires an error and, of a refusal, its exact text.
func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
		return
	}
	var f model.Forbidden
	if errors.As(want, &f) && err.Error() != string(f) {
		t.Errorf("%s: text %q, want %q", what, err, f)
	}
}

var (
	admin   = model.Grant{Action: model.ActionAdmin}
	produce = model.Grant{Action: model.ActionProduce, Patterns: []string{"orders-*"}}
)
