package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/access"
	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// cluster is the replicated users as one node sees them, in memory: unlike a node it
// survives the crashes of these tests.
type cluster struct {
	mu       sync.Mutex // guards everything below
	users    map[string]model.Account
	follower bool
	unsure   int  // so many proposals apply, but their outcome is not known
	lost     bool // proposals neither apply nor are refused
	proposed func()
}

func newCluster() *cluster { return &cluster{users: map[string]model.Account{}} }

func (c *cluster) HasUsers() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.users) > 0, nil
}

func (c *cluster) User(name string) (model.Account, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.users[name]
	return u, ok, nil
}

func (c *cluster) Writable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follower {
		return model.ErrUnavailable
	}
	return nil
}

func (c *cluster) Accept(_ context.Context, cmd metastore.Command) (metastore.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proposed != nil {
		c.proposed()
	}
	n := cmd.(metastore.CreateUser)
	switch {
	case c.lost:
		return metastore.Result{}, fmt.Errorf("%w: %w", model.ErrUnavailable, model.ErrOutcomeUnknown)
	case len(c.users) > 0:
		return metastore.Result{}, model.ErrUserExists
	}
	c.users[n.Username] = model.Account{User: model.User{Username: n.Username, Root: n.Root}, PasswordHash: n.PasswordHash}
	if c.unsure > 0 {
		c.unsure--
		return metastore.Result{}, fmt.Errorf("%w: %w", model.ErrUnavailable, model.ErrOutcomeUnknown)
	}
	return metastore.Result{}, nil
}

func (c *cluster) set(name, password string, root bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash, _ := cheapHash(ctx, password)
	c.users[name] = model.Account{User: model.User{Username: name, Root: root}, PasswordHash: hash}
}

func (c *cluster) rootHas(password string) bool {
	root, ok, _ := c.User("admin")
	plain, _ := hashed.Load(root.PasswordHash)
	return ok && root.Root && plain == password
}

// hashed remembers what cheapHash hashed, which is faster than comparing.
var hashed sync.Map

func cheapHash(_ context.Context, password string) (string, error) {
	b, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	hashed.Store(string(b), password)
	return string(b), err
}

const dataDir = "/data"

func newVolume() *disk.Sim {
	s := disk.NewSim(1)
	if err := disk.MkdirDurable(s, dataDir); err != nil {
		panic(err)
	}
	return s
}

// seedRig is a Seeder with a fake clock.
type seedRig struct {
	*Seeder
	clock *clock.Fake
	log   *logBuffer
}

func newSeed(fsys disk.FS, c SeedStore, password string) *seedRig {
	r := &seedRig{clock: clock.NewFake(time.Unix(1_700_000_000, 42)), log: &logBuffer{}}
	r.Seeder = NewSeeder(SeederOptions{
		Store: c, Hash: cheapHash, FS: fsys, DataDir: dataDir, Node: "narad-0", Password: password,
		Clock: r.clock, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	return r
}

// seed runs one Seeder to its end, in one attempt.
func seed(t testing.TB, fsys disk.FS, c SeedStore, password string) *seedRig {
	t.Helper()
	r := newSeed(fsys, c, password)
	if !r.attempt() {
		t.Fatalf("not done:\n%s", r.log)
	}
	return r
}

// files are the password files of a volume, by name.
func files(t testing.TB, fsys disk.FS) map[string]string {
	t.Helper()
	list, err := fsys.List(dataDir)
	must(t, err)
	out := map[string]string{}
	for _, f := range list {
		if strings.HasPrefix(f.Name, "admin-password") {
			b, err := disk.ReadFile(fsys, dataDir+"/"+f.Name, 1<<20)
			must(t, err)
			out[f.Name] = strings.TrimSuffix(string(b), "\n")
		}
	}
	return out
}

func write(t testing.TB, fsys disk.FS, name, content string) {
	t.Helper()
	must(t, disk.WriteFileAtomic(fsys, dataDir+"/"+name, []byte(content)))
}

func TestROOT1ROOT2PasswordFromTheEnvironment(t *testing.T) {
	c, volume := newCluster(), newVolume()
	r := seed(t, volume, c, "hunter2")
	if !c.rootHas("hunter2") || len(files(t, volume)) != 0 {
		t.Fatal(c.users, files(t, volume))
	}
	if r.log.count("hunter2") != 0 || r.log.count("level=WARN") != 0 {
		t.Fatal(r.log)
	}
	// Read only at seeding: it does nothing later (ROOT-2).
	r = seed(t, volume, c, "changed")
	if !c.rootHas("hunter2") {
		t.Fatal("a later value changed the password")
	}
	if r.log.count(`level=WARN msg="NARAD_ADMIN_PASSWORD is set but ignored"`) != 1 || r.log.count("changed") != 0 {
		t.Fatal(r.log) // ROOT-5
	}
	if r = seed(t, volume, c, "hunter2"); r.log.String() != "" {
		t.Fatal(r.log) // it is root's password
	}
	if r = seed(t, volume, c, ""); r.log.String() != "" {
		t.Fatal(r.log)
	}
}

func TestROOT3GeneratedPassword(t *testing.T) {
	c, volume := newCluster(), newVolume()
	var atProposal map[string]string
	c.proposed = func() { atProposal = files(t, volume) }
	r := seed(t, volume, c, "")
	got := files(t, volume.Crash(8))
	password := got["admin-password"]
	if len(got) != 1 || len(password) < 26 || !c.rootHas(password) {
		t.Fatal(got)
	}
	if atProposal["admin-password.pending"] != password {
		t.Fatalf("the password was not on file before the proposal: %v", atProposal)
	}
	if r.log.count(`level=WARN msg="seeded root admin with a generated password" path=/data/admin-password node=narad-0`) != 1 || r.log.count(password) != 0 {
		t.Fatal(r.log)
	}
	second := newCluster()
	seed(t, newVolume(), second, "")
	if second.rootHas(password) {
		t.Fatal("the same password twice")
	}
}

func TestROOT3ModeOnARealDisk(t *testing.T) {
	dir, c := t.TempDir(), newCluster()
	r := newSeed(disk.OS{}, c, "")
	r.DataDir = filepath.ToSlash(dir)
	if !r.attempt() {
		t.Fatal(r.log)
	}
	info, err := os.Stat(filepath.Join(dir, "admin-password"))
	must(t, err)
	if os.PathSeparator == '/' && info.Mode().Perm() != 0o600 {
		t.Fatal(info.Mode())
	}
	b, err := os.ReadFile(filepath.Join(dir, "admin-password"))
	must(t, err)
	if !c.rootHas(strings.TrimSpace(string(b))) || !strings.HasSuffix(string(b), "\n") {
		t.Fatalf("%q", b)
	}
}

func TestROOT3AnExistingFileIsNeverOverwritten(t *testing.T) {
	c, volume := newCluster(), newVolume()
	write(t, volume, "admin-password", "of an earlier cluster")
	r := seed(t, volume, c, "")
	got := files(t, volume)
	if len(got) != 2 || got["admin-password"] != "of an earlier cluster" || !c.rootHas(got["admin-password.1700000000000000042"]) {
		t.Fatal(got)
	}
	if r.log.count("path=/data/admin-password.1700000000000000042 ") != 1 {
		t.Fatal(r.log)
	}
}

func TestROOT4NoFileNoSeed(t *testing.T) {
	c, volume := newCluster(), newVolume()
	volume.Fail(disk.Rule{Op: disk.OpWrite, Path: "admin-password*", Err: syscall.ENOSPC})
	r := newSeed(volume, c, "")
	r.Start()
	defer r.Close()
	for range 40 {
		testutil.Eventually(t, 5*time.Second, func() bool { return r.clock.Timers() == 1 }, "the retry is armed")
		r.clock.Advance(seedRetry)
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return r.clock.Timers() == 1 }, "the retry is armed")
	if len(c.users) != 0 || len(files(t, volume)) != 0 {
		t.Fatal(c.users, files(t, volume))
	}
	if n := r.log.count(`level=ERROR msg="not seeding the root admin yet" err=`); n != 2 {
		t.Fatalf("%d lines in 80 s\n%s", n, r.log)
	}
	volume.ClearRules()
	r.clock.Advance(seedRetry - 1)
	if len(c.users) != 0 {
		t.Fatal("seeded before the retry was due")
	}
	r.clock.Advance(1)
	testutil.Eventually(t, 5*time.Second, func() bool { return len(files(t, volume)) == 1 && files(t, volume)["admin-password"] != "" }, "the file is there")
	if !c.rootHas(files(t, volume)["admin-password"]) || r.clock.Timers() != 0 {
		t.Fatal("not seeded, or still trying")
	}
}

func TestROOT2APasswordThatIsTooLongSeedsNothing(t *testing.T) {
	c := newCluster()
	r := newSeed(newVolume(), c, strings.Repeat("p", 73))
	if r.attempt() || len(c.users) != 0 || r.log.count("not seeding the root admin yet") != 1 || r.log.count("ppp") != 0 {
		t.Fatal(c.users, r.log)
	}
}

func TestROOT1OnlyTheLeaderSeeds(t *testing.T) {
	c, volume := newCluster(), newVolume()
	c.follower = true
	r := newSeed(volume, c, "")
	if r.attempt() || len(c.users) != 0 || len(files(t, volume)) != 0 || r.log.String() != "" {
		t.Fatal(c.users, files(t, volume), r.log)
	}
	c.set("admin", "by another node", true)
	if !r.attempt() || len(files(t, volume)) != 0 || r.log.String() != "" {
		t.Fatal(files(t, volume), r.log)
	}
}

func TestROOT3AnotherNodesSeedWins(t *testing.T) {
	c, volume := newCluster(), newVolume()
	r := newSeed(volume, c, "")
	c.proposed = func() { c.users["admin"] = mustAccount(t, "theirs") }
	if !r.attempt() {
		t.Fatal(r.log)
	}
	if got := files(t, volume); len(got) != 0 || !c.rootHas("theirs") || r.log.count("seeded") != 0 {
		t.Fatal(got, r.log)
	}
}

func mustAccount(t testing.TB, password string) model.Account {
	t.Helper()
	hash, err := cheapHash(ctx, password)
	must(t, err)
	return model.Account{User: model.User{Username: "admin", Root: true}, PasswordHash: hash}
}

func TestROOT3AnUnknownOutcomeKeepsThePassword(t *testing.T) {
	c, volume := newCluster(), newVolume()
	c.lost = true
	r := newSeed(volume, c, "")
	if r.attempt() {
		t.Fatal("done")
	}
	first := files(t, volume)["admin-password.pending"]
	c.lost, c.unsure = false, 1
	if r.attempt() { // applied, but it is not told so
		t.Fatal("done")
	}
	if !r.attempt() {
		t.Fatal(r.log)
	}
	if got := files(t, volume); len(got) != 1 || got["admin-password"] != first || !c.rootHas(first) {
		t.Fatal(got, first)
	}
}

func TestROOT5UsersWithoutARoot(t *testing.T) {
	c, volume := newCluster(), newVolume()
	c.set("ada", "pw", false)
	write(t, volume, pendingFile, "of a seed that lost\n")
	write(t, volume, pendingFile+".tmp", "cut off")
	r := seed(t, volume, c, "hunter2")
	if r.log.count("is set but ignored") != 1 || len(c.users) != 1 || len(files(t, volume)) != 0 {
		t.Fatal(r.log, c.users, files(t, volume))
	}
}

func TestSeederCloseEndsTheRetries(t *testing.T) {
	c := newCluster()
	c.follower = true
	r := newSeed(newVolume(), c, "")
	r.Start()
	must(t, r.Close())
	must(t, r.Close())
}

// TestROOT3CrashAnywhere cuts the power at every I/O call of seeding, with several
// outcomes each, and for one of them at every call of the recovery too: whenever there
// is a root, the volume holds its password, and in the end under the final name alone.
func TestROOT3CrashAnywhere(t *testing.T) {
	var c *cluster
	volume := func() *disk.Sim { c = newCluster(); return newVolume() }
	run := func(s *disk.Sim) error { return try(s, c) }
	nested := 0
	testutil.CrashPoints(t, volume, run, func(crashed *disk.Sim, k int) {
		users := c.users // as the crashed run left them
		defer func() { c = &cluster{users: users} }()
		kept(t, c, crashed)
		for j := 1; nested < k; j++ {
			c = &cluster{users: maps.Clone(users)}
			again := crashed.Crash(0) // nothing is unsynced: a copy
			again.CrashAt(j)
			if err := try(again, c); !again.Crashed() {
				must(t, err)
				nested = k
			}
			twice := again.Crash(int64(j))
			kept(t, c, twice)
			must(t, try(twice, c))
			final(t, c, twice)
		}
		c = &cluster{users: maps.Clone(users)}
		again := crashed.Crash(0)
		must(t, try(again, c))
		final(t, c, again)
	})
}

// TestROOT3FailAnywhere fails every I/O call once, and every later one: the next
// attempts of the same process end well, or those after the disk has recovered.
func TestROOT3FailAnywhere(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		var c *cluster
		volume := func() *disk.Sim { c = newCluster(); return newVolume() }
		var r *seedRig
		run := func(s *disk.Sim) error {
			r = newSeed(s, c, "")
			r.attempt()
			r.attempt()
			return nil
		}
		testutil.FailPoints(t, volume, disk.Rule{Err: syscall.EIO, Sticky: sticky}, run, func(s *disk.Sim, k int, _ error) {
			kept(t, c, s)
			if sticky && !r.attempt() {
				t.Fatal(r.log)
			}
			must(t, try(s, c)) // also what a restart finds
			final(t, c, s)
		})
	}
}

var errNotDone = errors.New("the attempt was not the last")

// try is what a start of the process does.
func try(s *disk.Sim, c *cluster) error {
	r := newSeed(s, c, "")
	if !r.attempt() {
		return fmt.Errorf("%w: %s", errNotDone, r.log)
	}
	return nil
}

// kept: if there is a root, some file holds its password.
func kept(t *testing.T, c *cluster, s *disk.Sim) {
	t.Helper()
	if len(c.users) == 0 {
		return
	}
	for _, password := range files(t, s) {
		if c.rootHas(password) {
			return
		}
	}
	t.Fatalf("nobody can read root's password: %v", files(t, s))
}

// final: root's password is in the one file there is.
func final(t *testing.T, c *cluster, s *disk.Sim) {
	t.Helper()
	if got := files(t, s); len(got) != 1 || !c.rootHas(got["admin-password"]) {
		t.Fatalf("files %v of %v", got, c.users)
	}
}

// TestROOT1OverTheRealParts seeds a real node, and logs in with what the file says.
func TestROOT1OverTheRealParts(t *testing.T) {
	store := openStore(t)
	auth := access.New(access.Options{Users: store, Cost: bcrypt.MinCost})
	defer auth.Close()
	dir := t.TempDir()
	s := NewSeeder(SeederOptions{Store: store, Hash: auth.Hash, FS: disk.OS{}, DataDir: filepath.ToSlash(dir), Node: "narad-0"})
	s.Start()
	defer s.Close()
	b, err := os.ReadFile(filepath.Join(dir, "admin-password"))
	must(t, err)
	must(t, auth.Verify(ctx, "admin", strings.TrimSpace(string(b))))
	if users, err := store.Users(); err != nil || len(users) != 1 || !users[0].Root || users[0].Username != "admin" {
		t.Fatal(users, err)
	}
	m := NewManager(store, auth, NewAuthority(AuthorityOptions{Store: store, Secured: true}))
	root, err := access.LeaderCaller(store, "admin")
	must(t, err)
	_, err = m.Create(ctx, root, CreateRequest{Username: "ada", Password: "pw", Grants: []model.Grant{admin}})
	must(t, err)
}
