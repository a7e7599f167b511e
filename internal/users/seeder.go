package users

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// The password file's names in the data directory.
const (
	passwordFile = "admin-password"
	pendingFile  = "admin-password.pending"
)

// Pace of seeding (spec/http-api ROOT-4, spec/operations section 7.2).
const (
	seedRetry     = 2 * time.Second
	seedTimeout   = 10 * time.Second // of one attempt
	seedLogPeriod = time.Minute
)

// passwordFileMax bounds what is read back: a generated password and a newline.
const passwordFileMax = 128

// SeedStore is what seeding needs of the metastore.
type SeedStore interface {
	HasUsers() (bool, error)
	User(name string) (model.Account, bool, error)
	Writable() error
	Accept(ctx context.Context, c metastore.Command) (metastore.Result, error)
}

// SeederOptions configures a Seeder.
type SeederOptions struct {
	Store    SeedStore
	Hash     func(ctx context.Context, password string) (string, error) // access.Authenticator.Hash
	FS       disk.FS
	DataDir  string // slash-separated; exists
	Node     string // this node's member id, for log lines
	Password string // NARAD_ADMIN_PASSWORD; "" = generate one
	Clock    clock.Clock
	Logger   *slog.Logger
}

// Seeder makes the root admin while there is no user and this node leads (ROOT-1 to
// ROOT-5).
//
// A generated password reaches its file in three steps, each durable before the next:
//
//  1. write    admin-password.pending
//  2. propose  the root admin with the hash of what it holds; refused if any user exists
//  3. rename   to admin-password, or admin-password.<unix nanoseconds> if that is taken
//
// So there is never a root whose password nobody can read, and a file without the
// suffix held root's password when it was made. A crash after step 1 leaves a password
// that was never proposed, or whose entry this leader's barrier has decided: without
// users it is worth nothing and step 1 replaces it. Within one process the password is
// drawn once, since an entry whose outcome is unknown may still apply. A crash after
// step 2 leaves the pending file beside a root it matches: renamed. Beside a root it
// does not match (another node's seed won, or the password was changed since) it is
// removed. No other file is ever removed or written over.
type Seeder struct {
	SeederOptions
	limiter   *telemetry.Limiter
	generated string // the password in the pending file, once that is durable; one attempt at a time
	seeded    bool   // by this Seeder; one attempt at a time

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewSeeder returns a Seeder that has not begun.
func NewSeeder(o SeederOptions) *Seeder {
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Logger == nil {
		o.Logger = telemetry.Discard()
	}
	s := &Seeder{SeederOptions: o, limiter: telemetry.NewLimiter(o.Clock, seedLogPeriod)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start makes one attempt and, unless there are users then, goes on every 2 s in the
// background until there are, or Close. It is called once.
func (s *Seeder) Start() {
	if !s.attempt() {
		s.wg.Go(s.run)
	}
}

func (s *Seeder) run() {
	for {
		timer := s.Clock.NewTimer(seedRetry)
		select {
		case <-timer.C():
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		if s.attempt() {
			return
		}
	}
}

// Close ends the attempts and waits for the one under way. It is idempotent.
func (s *Seeder) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// attempt is one try; true once there are users and nothing is left to do.
func (s *Seeder) attempt() (done bool) {
	writable := s.Store.Writable() // asked before the read: a leader's replica holds every change
	exist, err := s.Store.HasUsers()
	if err == nil && !exist {
		if writable != nil {
			return false // the leader seeds
		}
		exist, err = s.seed()
	}
	switch {
	case err != nil:
		s.report("not seeding the root admin yet", err)
		return false
	case !exist:
		return false
	}
	if err := s.settle(); err != nil {
		s.report("the root admin is seeded, but its password file is not in place yet", err)
		return false
	}
	return true
}

// report logs what every attempt may find again.
func (s *Seeder) report(msg string, err error) {
	if s.ctx.Err() == nil && s.limiter.Allow(msg) {
		s.Logger.Error(msg, slog.Any("err", err))
	}
}

// seed proposes the root admin; true once there is one, ours or another's.
func (s *Seeder) seed() (bool, error) {
	ctx, cancel := context.WithTimeout(s.ctx, seedTimeout)
	defer cancel()
	password, err := s.password()
	if err != nil {
		return false, err
	}
	hash, err := s.Hash(ctx, password)
	if err != nil {
		return false, err
	}
	_, err = s.Store.Accept(ctx, metastore.CreateUser{
		Username: model.RootUsername, PasswordHash: hash, Root: true, At: s.Clock.Now().UnixMilli(),
	})
	if errors.Is(err, model.ErrUserExists) {
		return true, nil
	}
	s.seeded = err == nil
	return s.seeded, err
}

// password is what root will have: the configured one, or a generated one that its
// pending file holds durably.
func (s *Seeder) password() (string, error) {
	if s.Password != "" {
		return s.Password, access.ValidatePassword("NARAD_ADMIN_PASSWORD", s.Password)
	}
	if s.generated == "" {
		password := rand.Text()
		if err := disk.WriteFileAtomic(s.FS, s.path(pendingFile), []byte(password+"\n")); err != nil {
			return "", fmt.Errorf("write %s: %w", s.path(pendingFile), err)
		}
		s.generated = password
	}
	return s.generated, nil
}

func (s *Seeder) path(name string) string { return path.Join(s.DataDir, name) }

// settle ends seeding on a cluster that has users: it puts the password file in its
// place and says when a configured password has no effect (ROOT-5).
func (s *Seeder) settle() error {
	root, ok, err := s.Store.User(model.RootUsername)
	if err != nil {
		return err
	}
	ok = ok && root.Root
	if err := s.settleFile(root.PasswordHash, ok); err != nil {
		return err
	}
	s.generated = ""
	switch {
	case s.Password == "":
	case s.seeded:
		s.Logger.Info("seeded root admin with the password of NARAD_ADMIN_PASSWORD", slog.String("node", s.Node))
	case !ok || !is(root.PasswordHash, s.Password):
		s.Logger.Warn("NARAD_ADMIN_PASSWORD is set but ignored")
	}
	return nil
}

// is reports whether the hash is one of the password; a hash that is none matches
// nothing.
func is(hash, password string) bool {
	ok, err := access.Matches(hash, password)
	return ok && err == nil
}

// settleFile renames the pending file if it holds the password of root's hash, and
// removes it if it does not.
func (s *Seeder) settleFile(hash string, haveRoot bool) error {
	pending := s.path(pendingFile)
	if err := s.remove(pending + ".tmp"); err != nil { // of a write that a crash cut off
		return err
	}
	b, err := disk.ReadFile(s.FS, pending, passwordFileMax)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	matches := false
	if haveRoot {
		if matches, err = access.Matches(hash, strings.TrimSuffix(string(b), "\n")); err != nil {
			return fmt.Errorf("compare %s with root's password hash: %w", pending, err)
		}
	}
	if !matches {
		return s.remove(pending)
	}
	final, err := s.freeName()
	if err != nil {
		return err
	}
	if err := s.FS.Rename(pending, final); err != nil {
		return err
	}
	s.Logger.Warn("seeded root admin with a generated password", slog.String("path", final), slog.String("node", s.Node))
	if err := disk.SyncDir(s.FS, s.DataDir); err != nil {
		// A crash may bring the pending name back; the next start renames it again.
		s.report("could not sync the directory of the root admin's password file", err)
	}
	return nil
}

func (s *Seeder) remove(name string) error {
	if err := s.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// freeName is the first name of the password file that is not taken.
func (s *Seeder) freeName() (string, error) {
	name := s.path(passwordFile)
	for _, name := range []string{name, fmt.Sprintf("%s.%d", name, s.Clock.Now().UnixNano())} {
		_, err := s.FS.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("no free name for %s: %w", name, fs.ErrExist)
}
