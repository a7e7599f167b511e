package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// How often the same thing is logged (spec/operations section 7.2; the last one is
// per node).
const (
	throttledPeriod = 12 * time.Second // per username
	exhaustedPeriod = 10 * time.Second
	storePeriod     = time.Second
)

// Reader reads one user of the local replica.
type Reader interface {
	User(name string) (model.Account, bool, error)
}

// Users is what authentication reads of the local replica. UsersVersion moves after
// every change of a user is visible to User.
type Users interface {
	Reader
	UsersVersion() uint64
}

// Options configures an Authenticator.
type Options struct {
	Users    Users                 // required
	Clock    clock.Clock           // nil = the real one
	Logger   *slog.Logger          // nil = none
	Registry prometheus.Registerer // nil = unregistered
	Cost     int                   // bcrypt cost of new hashes; 0 = DefaultCost
}

// Authenticator checks credentials of one node. Safe for concurrent use. It has no
// goroutine while nothing is being checked.
type Authenticator struct {
	users    Users
	clock    clock.Clock
	log      *slog.Logger
	start    time.Time
	cost     int
	cache    *cache
	verifier *verifier
	hashing  chan struct{} // holds a token per password being hashed
	scratch  sync.Pool     // *scratch

	throttled *telemetry.Limiter
	exhausted *telemetry.Limiter
	failing   *telemetry.Limiter
}

// scratch is what one request works in.
type scratch struct {
	raw []byte    // holds passwords; wiped before it is pooled
	mac hash.Hash // keyed with the process's secret
	sum []byte
}

// New returns an Authenticator over the users of the local replica.
func New(o Options) *Authenticator {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	if o.Cost == 0 {
		o.Cost = DefaultCost
	}
	queued := telemetry.Register(o.Registry, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "narad_auth_verify_queued", Help: "Password checks admitted and unfinished, abandoned ones included.",
	}))
	secret := make([]byte, sha256.BlockSize)
	rand.Read(secret) // never fails since Go 1.24
	a := &Authenticator{
		users: o.Users, clock: o.Clock, log: o.Logger, start: o.Clock.Now(), cost: o.Cost,
		cache: newCache(), hashing: make(chan struct{}, hashingSlots),
		throttled: telemetry.NewLimiter(o.Clock, throttledPeriod),
		exhausted: telemetry.NewLimiter(o.Clock, exhaustedPeriod),
		failing:   telemetry.NewLimiter(o.Clock, storePeriod),
	}
	a.verifier = newVerifier(queued, a.now)
	a.scratch.New = func() any { return &scratch{mac: hmac.New(sha256.New, secret)} }
	return a
}

// Close refuses the checks that have not begun (model.ErrShuttingDown) and waits for
// those that have. Cached credentials still pass. It is idempotent.
func (a *Authenticator) Close() error {
	a.verifier.close()
	return nil
}

// Authenticate returns the caller an Authorization header stands for. Errors:
// model.Unauthenticated (401), *model.AuthThrottledError (429),
// model.ErrAuthUnavailable (500), model.ErrShuttingDown (503), or the error of ctx for
// a requester that left; the check it waited for goes on.
//
// For a credential that is cached it takes well under a microsecond and allocates
// nothing.
func (a *Authenticator) Authenticate(ctx context.Context, header string) (*Caller, error) {
	s := a.scratch.Get().(*scratch)
	defer a.release(s)
	cred, err := s.parseBasic(header)
	if err != nil {
		return nil, err
	}
	return a.verify(ctx, s, cred)
}

// Verify checks a username and password by the same rules, cache and budgets as
// Authenticate (spec/http-api ESC-7).
func (a *Authenticator) Verify(ctx context.Context, username, password string) error {
	s := a.scratch.Get().(*scratch)
	defer a.release(s)
	_, err := a.verify(ctx, s, s.claim(username, password))
	return err
}

// release pools the scratch, without the password it held.
func (a *Authenticator) release(s *scratch) {
	clear(s.raw[:cap(s.raw)])
	a.scratch.Put(s)
}

func (s *scratch) sign(text []byte) (m mac) {
	s.mac.Reset()
	s.mac.Write(text)
	s.sum = s.mac.Sum(s.sum[:0])
	copy(m[:], s.sum)
	return m
}

func (a *Authenticator) now() time.Duration { return a.clock.Now().Sub(a.start) }

// verify answers from the cache, or else from the user's record.
func (a *Authenticator) verify(ctx context.Context, s *scratch, cred credential) (*Caller, error) {
	version := a.users.UsersVersion() // before the record is read
	m := s.sign(cred.text)
	known := a.cache.get(cred.username)
	if known != nil && known.is(m) {
		if st := known.state.Load(); st.version >= version {
			return st.caller, nil
		}
	}
	username := string(cred.username)
	acct, ok, err := a.users.User(username)
	switch {
	case err != nil:
		return nil, a.storeFailure(err)
	case !ok:
		if known != nil {
			a.cache.drop(username, known)
		}
		return nil, model.CredentialsInvalid
	case known != nil && known.is(m) && known.hash == acct.PasswordHash:
		caller := NewCaller(acct.User)
		known.state.Store(&grantState{version: version, caller: caller})
		return caller, nil
	case len(cred.password) < 1 || len(cred.password) > PasswordMax:
		return nil, model.CredentialsInvalid // no password is like that, so nothing is learnt
	}
	return a.check(ctx, acct, version, m, cred.password)
}

// check has the password compared with the record's hash.
func (a *Authenticator) check(ctx context.Context, acct model.Account, version uint64, m mac, password []byte) (*Caller, error) {
	caller := NewCaller(acct.User)
	c, refused := a.verifier.join(&check{
		key: checkKey{mac: m, hash: acct.PasswordHash}, username: acct.Username, password: append([]byte(nil), password...),
		verdict: func() { a.cache.put(acct.Username, newVerified(m, acct.PasswordHash, version, caller)) },
	})
	if refused != nil {
		return nil, a.refuse(acct.Username, refused)
	}
	err := c.wait(ctx)
	switch {
	case err == nil:
		return caller, nil
	case isMismatch(err):
		return nil, model.CredentialsInvalid
	case errors.Is(err, model.ErrShuttingDown), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return nil, err
	}
	return nil, a.storeFailure(fmt.Errorf("password hash of %q: %w", acct.Username, err))
}

func isMismatch(err error) bool { return errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) }

// refuse logs and answers a check that was not admitted.
func (a *Authenticator) refuse(username string, t *throttle) error {
	if t.byNode {
		a.exhausted.Warn(a.log, "", "authentication failure budget exhausted")
	} else {
		a.throttled.Warn(a.log, username, "authentication throttled", slog.String("username", username))
	}
	return &model.AuthThrottledError{RetryAfter: int((t.wait + time.Second - 1) / time.Second)}
}

// storeFailure logs and answers a user store that cannot be read (AUTH-11).
func (a *Authenticator) storeFailure(err error) error {
	if a.failing.Allow("") {
		a.log.Error("authentication store failure", slog.Any("err", err))
	}
	return fmt.Errorf("%w: %w", model.ErrAuthUnavailable, err)
}
