package controller

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/model"
)

func TestSpread(t *testing.T) {
	owned := map[string]int{"a": 4, "b": 1, "c": 1}
	got := spread(5, []string{"a", "b", "c"}, func(id string) int { return owned[id] })
	if want := []string{"b", "c", "a", "b", "c"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v: fewest first, ties by id", got, want)
	}
}

// Round-robin: no member gets two more of the new partitions than another.
func TestSpreadIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 1, 9, rapid.ID).Draw(t, "ids")
		n := rapid.IntRange(0, 108).Draw(t, "n")
		counts := map[string]int{}
		for _, id := range spread(n, ids, func(id string) int { return len(id) }) {
			counts[id]++
		}
		low, high := n, 0
		for _, id := range ids {
			low, high = min(low, counts[id]), max(high, counts[id])
		}
		if high-low > 1 || len(counts) > len(ids) {
			t.Fatalf("%d partitions over %v: %v", n, ids, counts)
		}
	})
}

func TestReceivers(t *testing.T) {
	alive, dead := model.MemberAlive, model.MemberDead
	for _, c := range []struct {
		name string
		in   []model.Member
		want []string
		err  error
	}{
		{"nobody", nil, nil, model.ErrNoMember},
		{"all dead", []model.Member{{ID: "a", Status: dead}}, nil, model.ErrNoMember},
		{"dead and draining", []model.Member{{ID: "a", Status: dead, Draining: true}}, nil, model.ErrNoMember},
		{"all draining", []model.Member{{ID: "a", Status: alive, Draining: true}, {ID: "b", Status: dead}}, nil, model.ErrAllDraining},
		{"some", []model.Member{{ID: "a", Status: alive, Draining: true}, {ID: "b", Status: alive}, {ID: "c", Status: dead}}, []string{"b"}, nil},
	} {
		got, err := receivers(c.in)
		if !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// Where a replica child can be kept apart from its parent, it is, and the deal of
// partitions to members stays as it was.
func TestSeparate(t *testing.T) {
	owners := []string{"a", "b", "c"}
	separate(owners, []string{"a", "b", "c"})
	for p, o := range owners {
		if o == []string{"a", "b", "c"}[p] {
			t.Errorf("%v: partition %d lies with its parent's", owners, p)
		}
	}
	alone := []string{"a", "a"}
	separate(alone, []string{"a", "a"})
	if alone[0] != "a" || alone[1] != "a" {
		t.Errorf("%v", alone)
	}
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SampledFrom([]string{"a", "b", "c"})
		parents := rapid.SliceOfN(ids, 1, 12).Draw(t, "parents")
		owners := rapid.SliceOfN(ids, len(parents), len(parents)).Draw(t, "owners")
		count := func(list []string) map[string]int {
			n := map[string]int{}
			for _, id := range list {
				n[id]++
			}
			return n
		}
		clashes := func() (n int) {
			for p := range owners {
				if owners[p] == parents[p] {
					n++
				}
			}
			return n
		}
		dealt, before := count(owners), clashes()
		separate(owners, parents)
		if !reflect.DeepEqual(dealt, count(owners)) || clashes() > before {
			t.Fatalf("parents %v, owners %v", parents, owners)
		}
	})
}
