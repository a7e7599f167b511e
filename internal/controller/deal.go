package controller

import (
	"cmp"
	"slices"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// deal chooses owners for n partitions (spec/cluster-and-network section 10). They are
// dealt round-robin over the receivers. away, up to n long, names for each partition the
// member it is kept off: the owner of the parent's partition of the same index. With two
// receivers or more it is kept off, first by exchanging what was dealt, then, where
// no exchange helps, by the receiver that owns fewest.
func deal(n int, receivers []string, owned func(id string) int, away []string) []string {
	owners := spread(n, receivers, owned)
	if len(receivers) > 1 {
		separate(owners, away)
		redeal(owners, receivers, owned, away)
	}
	return owners
}

// spread deals n partitions round-robin over the receivers, starting at the one that
// owns fewest, ties by id, so that a create causes no moves.
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

// separate exchanges owners so that, as far as it goes, none is the one to keep off.
// How many each member gets stays as it was dealt.
func separate(owners, away []string) {
	wrong := func(q int, id string) bool { return q < len(away) && away[q] == id }
	for p := range min(len(owners), len(away)) {
		if owners[p] != away[p] {
			continue
		}
		for q := range owners {
			if owners[q] != away[p] && !wrong(q, owners[p]) {
				owners[p], owners[q] = owners[q], owners[p]
				break
			}
		}
	}
}

// redeal gives what still lies wrong to the other receiver that owns fewest.
func redeal(owners, receivers []string, owned func(id string) int, away []string) {
	dealt := make(map[string]int, len(receivers))
	for _, id := range owners {
		dealt[id]++
	}
	for p := range min(len(owners), len(away)) {
		if owners[p] != away[p] {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(receivers), func(id string) bool { return id == away[p] })
		best := slices.MinFunc(others, func(a, b string) int {
			return cmp.Or(cmp.Compare(owned(a)+dealt[a], owned(b)+dealt[b]), cmp.Compare(a, b))
		})
		dealt[owners[p]]--
		dealt[best]++
		owners[p] = best
	}
}

// receivers are the members new partitions may go to. None alive is
// model.ErrNoMember, all of the living draining is model.ErrAllDraining.
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
	return nil, model.ErrNoMember
}

// registered tells how many of the voters have a member record, and how many are alive
// by it.
func registered(servers []metastore.Server, members []model.Member) (voters, recorded, alive int) {
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		i, ok := slices.BinarySearchFunc(members, s.ID, func(m model.Member, id string) int { return cmp.Compare(m.ID, id) })
		if !ok {
			continue
		}
		recorded++
		if members[i].Status == model.MemberAlive {
			alive++
		}
	}
	return voters, recorded, alive
}

// verdict is what a pass decides about silent members.
type verdict struct {
	dead       []model.Member // to be marked
	refused    []string       // voters the breaker spares
	aliveAfter int            // voters that would stay alive, the leader among them
	quorum     int
	voters     int
}

// judge decides about the silent members, self, the leader, never among them. Where
// marking all of them would leave fewer than a quorum of the voters alive, no voter is
// marked; other members are.
func judge(silent []model.Member, servers []metastore.Server, members []model.Member, self string) verdict {
	var v verdict
	isVoter := map[string]bool{}
	for _, s := range servers {
		if s.Voter {
			isVoter[s.ID] = true
		}
	}
	v.voters = len(isVoter)
	v.quorum = v.voters/2 + 1
	isSilent := map[string]bool{}
	var voters []model.Member
	for _, m := range silent {
		isSilent[m.ID] = true
		if isVoter[m.ID] {
			voters = append(voters, m)
		} else {
			v.dead = append(v.dead, m)
		}
	}
	if isVoter[self] {
		v.aliveAfter++
	}
	for _, m := range members {
		if isVoter[m.ID] && m.ID != self && m.Status == model.MemberAlive && !isSilent[m.ID] {
			v.aliveAfter++
		}
	}
	if v.aliveAfter >= v.quorum {
		v.dead = append(v.dead, voters...)
		return v
	}
	for _, m := range voters {
		v.refused = append(v.refused, m.ID)
	}
	return v
}
