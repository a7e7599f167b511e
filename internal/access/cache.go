package access

import (
	"crypto/subtle"
	"maps"
	"sync"
	"sync/atomic"
)

// cacheMax bounds the credentials remembered. Past it any one is forgotten for a new
// one, which costs that user one bcrypt run.
const cacheMax = 4096

// mac stands for a credential: HMAC-SHA-256 of username, colon and password under a
// secret that lives and dies with the process.
type mac [32]byte

// verified is a user's right credential. All but state is immutable.
type verified struct {
	mac   mac
	hash  string // the bcrypt hash the password matched
	state atomic.Pointer[grantState]
}

// grantState is the user as of a users version.
type grantState struct {
	version uint64 // loaded before the record was read
	caller  *Caller
}

func newVerified(m mac, hash string, version uint64, c *Caller) *verified {
	v := &verified{mac: m, hash: hash}
	v.state.Store(&grantState{version: version, caller: c})
	return v
}

// is compares in constant time.
func (v *verified) is(m mac) bool { return subtle.ConstantTimeCompare(v.mac[:], m[:]) == 1 }

// cache holds one verified credential a user. Reads are one map load without a lock;
// the map is replaced on every change, which a bcrypt run pays for.
type cache struct {
	mu      sync.Mutex // serialises changes
	entries atomic.Pointer[map[string]*verified]
}

func newCache() *cache {
	c := &cache{}
	c.entries.Store(&map[string]*verified{})
	return c
}

func (c *cache) get(username []byte) *verified { return (*c.entries.Load())[string(username)] }

func (c *cache) put(username string, v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := maps.Clone(*c.entries.Load())
	if _, known := next[username]; !known && len(next) >= cacheMax {
		for other := range next {
			delete(next, other)
			break
		}
	}
	next[username] = v
	c.entries.Store(&next)
}

// drop forgets v, unless something newer took its place.
func (c *cache) drop(username string, v *verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (*c.entries.Load())[username] != v {
		return
	}
	next := maps.Clone(*c.entries.Load())
	delete(next, username)
	c.entries.Store(&next)
}
