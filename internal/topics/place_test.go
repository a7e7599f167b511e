package topics

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
		{"nobody", nil, nil, errNoMember},
		{"all dead", []model.Member{{ID: "a", Status: dead}}, nil, errNoMember},
		{"dead and draining", []model.Member{{ID: "a", Status: dead, Draining: true}}, nil, errNoMember},
		{"all draining", []model.Member{{ID: "a", Status: alive, Draining: true}, {ID: "b", Status: dead}}, nil, model.ErrAllDraining},
		{"some", []model.Member{{ID: "a", Status: alive, Draining: true}, {ID: "b", Status: alive}, {ID: "c", Status: dead}}, []string{"b"}, nil},
	} {
		got, err := receivers(c.in)
		if !reflect.DeepEqual(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

type fixedMembers []model.Member

func (f fixedMembers) Members() []model.Member  { return f }
func (fixedMembers) OwnedPartitions(string) int { return 0 }

// Creates in flight count, so that they do not all begin at the same member.
func TestPlacerCountsWhatIsInFlight(t *testing.T) {
	p := newPlacer(fixedMembers{{ID: "a", Status: model.MemberAlive}, {ID: "b", Status: model.MemberAlive}})
	first, done1, err := p.choose(1)
	must(t, err)
	second, done2, err := p.choose(1)
	must(t, err)
	if first[0] != "a" || second[0] != "b" {
		t.Errorf("%v then %v", first, second)
	}
	done1()
	done2()
	if len(p.pending) != 0 {
		t.Errorf("pending %v", p.pending)
	}
}
