package access

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

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a user store in memory.
type replica struct {
	mu       sync.Mutex // guards everything below
	version  uint64
	accounts map[string]model.Account
	reads    int
	broken   error
}

func newReplica() *replica { return &replica{accounts: map[string]model.Account{}} }

func (r *replica) UsersVersion() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

func (r *replica) User(name string) (model.Account, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	acct, ok := r.accounts[name]
	return acct, ok, r.broken
}

// set creates or replaces a user; a password of "" keeps the hash.
func (r *replica) set(t testing.TB, name, password string, grants ...model.Grant) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	acct := r.accounts[name]
	acct.User = model.User{Username: name, Grants: grants, Root: name == model.RootUsername}
	if password != "" {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		acct.PasswordHash = string(hash)
	}
	r.accounts[name] = acct
	r.version++
}

func (r *replica) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.accounts, name)
	r.version++
}

func (r *replica) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

// rig is an Authenticator whose bcrypt runs are counted and can be held.
type rig struct {
	*Authenticator
	users *replica
	clock *clock.Fake
	log   *logBuffer
	runs  *runs
}

// runs counts bcrypt runs. While held, each run waits for a token of gate.
type runs struct {
	mu    sync.Mutex // guards order and gate
	order []string   // passwords, as their runs began
	gate  chan struct{}
}

func (r *runs) begin(password string) {
	r.mu.Lock()
	r.order = append(r.order, password)
	gate := r.gate
	r.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (r *runs) hold() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
	return r.gate
}

func (r *runs) begun() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.order...)
}

func (r *runs) count() int { return len(r.begun()) }

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{users: newReplica(), clock: clock.NewFake(time.Unix(1_700_000_000, 0)), log: &logBuffer{}, runs: &runs{}}
	r.Authenticator = New(Options{Users: r.users, Clock: r.clock, Logger: slog.New(slog.NewTextHandler(r.log, nil)), Cost: bcrypt.MinCost})
	r.verifier.compare = func(hash, password []byte) error {
		r.runs.begin(string(password))
		return compare(hash, password)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
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

func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func basic(username, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}

// login authenticates and returns what came of it.
func (r *rig) login(username, password string) (*Caller, error) {
	return r.Authenticate(context.Background(), basic(username, password))
}

func (r *rig) mustLogin(t testing.TB, username, password string) *Caller {
	t.Helper()
	c, err := r.login(username, password)
	if err != nil {
		t.Fatalf("login %s: %v", username, err)
	}
	return c
}

// refused requires a refusal with this text.
func (r *rig) refused(t testing.TB, username, password string, want error) {
	t.Helper()
	if c, err := r.login(username, password); !errors.Is(err, want) || c != nil {
		t.Fatalf("login %s: got %v, %v; want %v", username, c, err, want)
	}
}

// throttled requires a 429 and returns its seconds.
func (r *rig) throttled429(t testing.TB, username, password string) int {
	t.Helper()
	_, err := r.login(username, password)
	var e *model.AuthThrottledError
	if !errors.As(err, &e) || !errors.Is(err, model.ErrAuthThrottled) {
		t.Fatalf("login %s: got %v, want %v", username, err, model.ErrAuthThrottled)
	}
	return e.RetryAfter
}
