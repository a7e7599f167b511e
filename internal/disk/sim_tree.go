package disk

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// node is a file or a directory. A Sim's lock guards it.
type node struct {
	ino   uint64
	mod   time.Time
	links int // current entries that name it; the root has one
	opens int // open file handles

	*content // nil for a directory

	// Of a directory; entries is nil for a file.
	entries map[string]*node // current
	stable  map[string]*node // as of the last Sync
	pending []*dirChange     // between the two, oldest first
}

// entry is one name of a directory and what it names; a nil node removes it.
type entry struct {
	name string
	node *node
}

// dirChange is a change that survives a crash as a whole or not at all.
type dirChange struct {
	sets []entry
	move *dirMove // the move this is one side of, or nil
}

// dirMove ties the two sides of a rename across directories.
type dirMove struct {
	from, to *node
	isDir    bool
}

// other is the directory of the move that is not dir.
func (m *dirMove) other(dir *node) *node {
	if dir == m.from {
		return m.to
	}
	return m.from
}

func (n *node) isDir() bool { return n.entries != nil }

func (n *node) info(name string) Info {
	i := Info{Name: name, ModTime: n.mod, IsDir: n.isDir(), ID: ID{Dev: 1, Ino: n.ino}}
	if n.content != nil {
		i.Size = n.size
	}
	return i
}

// newNode makes a file or directory no entry names yet. Caller holds mu.
func (s *Sim) newNode(dir bool) *node {
	s.inoNext++
	n := &node{ino: s.inoNext, mod: s.now()}
	if dir {
		n.entries, n.stable = map[string]*node{}, map[string]*node{}
	} else {
		n.content = newContent()
	}
	return n
}

// clean makes a name absolute and canonical.
func clean(name string) string { return path.Clean("/" + name) }

func elements(name string) []string {
	full := clean(name)
	if full == "/" {
		return nil
	}
	return strings.Split(full[1:], "/")
}

func (s *Sim) lookup(name string) (*node, error) {
	at := s.root
	for _, el := range elements(name) {
		if !at.isDir() {
			return nil, syscall.ENOTDIR
		}
		if at = at.entries[el]; at == nil {
			return nil, fs.ErrNotExist
		}
	}
	return at, nil
}

func (s *Sim) lookupFile(name string) (*node, error) {
	n, err := s.lookup(name)
	if err == nil && n.isDir() {
		err = syscall.EISDIR
	}
	return n, err
}

// parent finds the directory that holds name; base is "" for the root itself.
func (s *Sim) parent(name string) (dir *node, base string, err error) {
	full := clean(name)
	if full == "/" {
		return s.root, "", nil
	}
	dir, err = s.lookup(path.Dir(full))
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	return dir, path.Base(full), err
}

// change applies one atomic change to a directory, not yet durable.
func (s *Sim) change(dir *node, sets ...entry) { s.apply(dir, &dirChange{sets: sets}) }

// move renames across directories: one change in each, tied together.
func (s *Sim) move(from *node, oldbase string, to *node, newbase string, n *node) {
	m := &dirMove{from: from, to: to, isDir: n.isDir()}
	s.apply(to, &dirChange{sets: []entry{{newbase, n}}, move: m})
	s.apply(from, &dirChange{sets: []entry{{oldbase, nil}}, move: m})
}

func (s *Sim) apply(dir *node, c *dirChange) {
	for _, e := range c.sets {
		old := dir.entries[e.name]
		if e.node == nil {
			delete(dir.entries, e.name)
		} else {
			dir.entries[e.name] = e.node
			e.node.links++
		}
		if old != nil {
			old.links--
			s.release(old)
		}
	}
	dir.pending = append(dir.pending, c)
	dir.mod = s.now()
}

// release gives back the room of a file that is neither named nor open.
func (s *Sim) release(n *node) {
	if n.content != nil && n.links == 0 && n.opens == 0 {
		s.sectors -= int64(len(n.cur))
	}
}

// commit makes the first count pending changes of a directory durable. A directory
// that moved in or out by one of them is never left half moved: its other side
// becomes durable up to the move.
func (n *node) commit(count int) {
	done := n.pending[:count]
	n.pending = n.pending[count:]
	for _, c := range done {
		setAll(n.stable, c.sets)
		if c.move == nil || !c.move.isDir {
			continue
		}
		other := c.move.other(n)
		if i := other.pendingMove(c.move); i >= 0 {
			other.commit(i + 1)
		}
	}
}

// pendingMove is the index of the pending change that is a side of m, or -1.
func (n *node) pendingMove(m *dirMove) int {
	return slices.IndexFunc(n.pending, func(c *dirChange) bool { return c.move == m })
}

func setAll(entries map[string]*node, sets []entry) {
	for _, e := range sets {
		if e.node == nil {
			delete(entries, e.name)
		} else {
			entries[e.name] = e.node
		}
	}
}

// surviving is what the directory holds after a crash that kept its first n
// pending changes.
func (n *node) surviving(kept int) map[string]*node {
	out := maps.Clone(n.stable)
	for _, c := range n.pending[:kept] {
		setAll(out, c.sets)
	}
	return out
}
