package topics

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/narad-mq/narad/internal/model"
)

// Placement is what placing partitions needs to know.
type Placement interface {
	Members() []model.Member
	OwnedPartitions(member string) int
}

// errNoMember: no member is alive, so new partitions stay unassigned until one is.
var errNoMember = errors.New("metastore: no alive member to own new partitions")

// spread deals n partitions round-robin over the receivers, starting at the one
// that owns fewest, ties by id, so that a create causes no moves (spec/cluster
// section 10).
func spread(n int, receivers []string, owned func(id string) int) []string {
	order := slices.Clone(receivers)
	counts := make(map[string]int, len(order))
	for _, id := range order {
		counts[id] = owned(id)
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	owners := make([]string, n)
	for i := range owners {
		owners[i] = order[i%len(order)]
	}
	return owners
}

// receivers are the members new partitions may go to. None alive is errNoMember,
// all of the living draining is model.ErrAllDraining.
func receivers(members []model.Member) ([]string, error) {
	var ids []string
	alive := false
	for i := range members {
		alive = alive || members[i].Status == model.MemberAlive
		if members[i].Receives() {
			ids = append(ids, members[i].ID)
		}
	}
	switch {
	case len(ids) > 0:
		return ids, nil
	case alive:
		return nil, model.ErrAllDraining
	}
	return nil, errNoMember
}

// placer chooses owners for concurrent creates: what was chosen but is not applied
// yet counts as owned, so that they do not all start at the same member.
type placer struct {
	store   Placement
	mu      sync.Mutex     // guards pending
	pending map[string]int // member id -> partitions chosen and not yet applied
}

func newPlacer(s Placement) *placer { return &placer{store: s, pending: map[string]int{}} }

// choose picks owners for n partitions; done is called once they are applied or
// given up.
func (p *placer) choose(n int) (owners []string, done func(), err error) {
	ids, err := receivers(p.store.Members())
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	owners = spread(n, ids, func(id string) int { return p.store.OwnedPartitions(id) + p.pending[id] })
	p.add(owners, 1)
	return owners, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(owners, -1)
	}, nil
}

// add counts owners in or out; caller holds mu.
func (p *placer) add(owners []string, by int) {
	for _, id := range owners {
		if p.pending[id] += by; p.pending[id] == 0 {
			delete(p.pending, id)
		}
	}
}

// place is choose for a request: without any live member the partitions stay
// unassigned, with a warning (TC-17).
func (m *Manager) place(n int, warning, topic string) (owners []string, done func(), err error) {
	owners, done, err = m.placer.choose(n)
	if errors.Is(err, errNoMember) {
		m.log.Warn(warning, "topic", topic, "node", m.node, "err", err)
		return nil, func() {}, nil
	}
	return owners, done, err
}
