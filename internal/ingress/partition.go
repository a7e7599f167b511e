package ingress

import (
	"math/rand/v2"
	"sync"
)

// rotationsMax is how many topics' round-robin places are remembered; the one
// used longest ago is forgotten first (spec/storage-and-produce section 15.3).
const rotationsMax = 4096

// rotations hands out partitions in turn, per topic, starting at a random one.
type rotations struct {
	mu     sync.Mutex // guards topics; held for one map load and a few stores
	topics *lru[string, uint32]
}

func newRotations(limit int) *rotations {
	return &rotations{topics: newLRU[string, uint32](limit)}
}

// next returns the topic's next partition of count, which is at least 1.
func (r *rotations) next(topic string, count int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.topics.get(topic)
	if at == nil {
		at = r.topics.add(topic, rand.Uint32N(uint32(count)))
	}
	p := *at % uint32(count)
	*at = p + 1
	return int(p)
}
