package disk

import (
	"fmt"
	"path"
	"strings"
	"syscall"
)

// Op is a kind of I/O call on a Sim.
type Op uint8

// The kinds of calls a Rule can name. Close and Stat are not calls.
const (
	OpAny Op = iota
	OpOpen
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpRename
	OpRemove
	OpMkdir
	OpSyncDir
	OpList
	OpOpenDir
	OpSpace
)

var opNames = [...]string{
	OpAny: "any", OpOpen: "open", OpRead: "read", OpWrite: "write", OpSync: "sync",
	OpTruncate: "truncate", OpRename: "rename", OpRemove: "remove", OpMkdir: "mkdir",
	OpSyncDir: "syncdir", OpList: "list", OpOpenDir: "opendir", OpSpace: "space",
}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("op %d", uint8(o))
}

// Rule makes calls on a Sim fail. A call a rule hits has no effect, but for what
// Short and Sync describe.
type Rule struct {
	Op Op // OpAny = every kind
	// Path is a pattern of path.Match for the base name or, if it has a slash, for
	// the whole path as it was opened; "" matches all. A rename is matched by
	// either of its names.
	Path string
	// N is the number of the matching call that fails, from 1; 0 = every one.
	N int
	// Sticky makes every matching call from the N-th on fail.
	Sticky bool
	// Err is wrapped in an *fs.PathError; nil = syscall.EIO. A file's failed Sync
	// leaves the bytes it covered in an unknown state.
	Err error
	// Lie makes a Sync, of a file or a directory, report success and do nothing.
	Lie bool
	// Short lets a write store only so many bytes before it fails with Err.
	Short int
}

type liveRule struct {
	Rule
	seen int // matching calls so far
}

// Fail adds a rule. Rules are tried in the order they were added; the first that
// hits decides. It panics if the path pattern is malformed.
func (s *Sim) Fail(r Rule) {
	if _, err := path.Match(r.Path, ""); err != nil {
		panic(fmt.Sprintf("disk.Sim rule: pattern %q: %v", r.Path, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &liveRule{Rule: r})
}

// ClearRules removes all rules; what they broke stays broken.
func (s *Sim) ClearRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Fired is the number of calls that rules have hit so far.
func (s *Sim) Fired() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// Calls is the number of I/O calls so far: every method of FS, File and Dir counts
// one, Close and Stat excluded.
func (s *Sim) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// CrashAt cuts the power in the n-th call from now: that call and all later ones
// fail with ErrCrashed. The n-th call may have taken effect, in part, but nothing
// of it is synced; Crash decides. n <= 0 takes the plan back.
func (s *Sim) CrashAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashAt = 0
	if n > 0 {
		s.crashAt = s.calls + n
	}
}

// Crashed reports whether the power is gone.
func (s *Sim) Crashed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashed
}

// verdict is what the rules and the crash plan decide about one call.
type verdict struct {
	err   error // injected; nil = none
	lie   bool
	short int
	dying bool // the power goes in this call
}

// call counts one call, decides its fate, and runs apply under the lock. Injected
// errors never reach apply, except for writes and syncs, which have effects of
// their own then. Every error comes back as an *fs.PathError.
func (s *Sim) call(op Op, names []string, apply func(verdict) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return pathError(op.String(), names[0], ErrCrashed)
	}
	s.calls++
	v := s.judge(op, names)
	err := v.err
	if err == nil || op == OpWrite || op == OpSync {
		err = apply(v)
	}
	if v.dying {
		s.crashed = true
		err = ErrCrashed
	}
	if err != nil {
		return pathError(op.String(), names[0], err)
	}
	return nil
}

func (s *Sim) judge(op Op, names []string) verdict {
	if s.crashAt > 0 && s.calls >= s.crashAt {
		return verdict{dying: true}
	}
	var hit *liveRule
	for _, r := range s.rules {
		if !r.matches(op, names) {
			continue
		}
		r.seen++
		if hit == nil && (r.N == 0 || r.seen == r.N || r.Sticky && r.seen > r.N) {
			hit = r
		}
	}
	if hit == nil {
		return verdict{}
	}
	s.fired++
	if hit.Lie && (op == OpSync || op == OpSyncDir) {
		return verdict{lie: true}
	}
	v := verdict{err: hit.Err, short: hit.Short}
	if v.err == nil {
		v.err = syscall.EIO
	}
	return v
}

func (r *liveRule) matches(op Op, names []string) bool {
	if r.Op != OpAny && r.Op != op {
		return false
	}
	if r.Path == "" {
		return true
	}
	for _, name := range names {
		full := clean(name)
		pattern, subject := r.Path, path.Base(full)
		if strings.Contains(pattern, "/") {
			pattern, subject = clean(pattern), full
		}
		if ok, err := path.Match(pattern, subject); err == nil && ok {
			return true
		}
	}
	return false
}
