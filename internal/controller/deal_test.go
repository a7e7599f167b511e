package controller

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/narad-mq/narad/internal/metastore"
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

// With two receivers or more every partition is kept off, whatever is to be kept off,
// and the deal stays even where the parent's was.
func TestDealKeepsOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,2}`), 2, 6, rapid.ID).Draw(t, "receivers")
		counts := rapid.SliceOfN(rapid.IntRange(0, 20), len(ids), len(ids)).Draw(t, "owned")
		owned := func(id string) int { return counts[slices.Index(ids, id)] }
		n := rapid.IntRange(1, 24).Draw(t, "n")
		away := rapid.SliceOfN(rapid.SampledFrom(append(ids, "", "GONE")), 0, n).Draw(t, "away")
		even := rapid.Bool().Draw(t, "even")
		if even {
			away = spread(n, ids, func(string) int { return 0 })
		}
		owners := deal(n, ids, owned, away)
		got := map[string]int{}
		for p, id := range owners {
			got[id]++
			if p < len(away) && id == away[p] || !slices.Contains(ids, id) {
				t.Fatalf("%d on %v off %v: %v", n, ids, away, owners)
			}
		}
		if again := deal(n, ids, owned, away); !reflect.DeepEqual(owners, again) {
			t.Fatalf("%v, then %v", owners, again)
		}
		low, high := n, 0
		for _, id := range ids {
			low, high = min(low, got[id]), max(high, got[id])
		}
		if even && high-low > 1 {
			t.Fatalf("%d on %v off %v: %v", n, ids, away, owners)
		}
	})
}

func TestDeal(t *testing.T) {
	none := func(string) int { return 0 }
	for _, c := range []struct {
		name      string
		receivers []string
		away      []string
		want      []string
	}{
		{"no parent", []string{"a", "b"}, nil, []string{"a", "b", "a"}},
		{"one receiver has no choice", []string{"a"}, []string{"a", "a", "a"}, []string{"a", "a", "a"}},
		{"two nodes", []string{"a", "b"}, []string{"a", "b", "a"}, []string{"b", "a", "b"}},
		{"all of the parent on one node", []string{"a", "b"}, []string{"a", "a", "a"}, []string{"b", "b", "b"}},
		{"three nodes", []string{"a", "b", "c"}, []string{"a", "b", "c"}, []string{"c", "a", "b"}},
		{"parent on a dead node", []string{"a", "b"}, []string{"z", "z", "z"}, []string{"a", "b", "a"}},
		{"a smaller parent", []string{"a", "b"}, []string{"a"}, []string{"b", "a", "a"}},
	} {
		if got := deal(3, c.receivers, none, c.away); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// member makes a record; a name in capitals is one marked dead.
func member(id string) model.Member {
	status := model.MemberAlive
	if id == strings.ToUpper(id) {
		status = model.MemberDead
	}
	return model.Member{ID: strings.ToLower(id), Status: status, HeartbeatAt: 7}
}

// members and voters are lists of one-letter names; capitals are dead members.
func membersOf(ids string) (out []model.Member) {
	for _, id := range ids {
		out = append(out, member(string(id)))
	}
	return out
}

func serversOf(voters, nonvoters string) (out []metastore.Server) {
	for _, id := range voters {
		out = append(out, metastore.Server{ID: string(id), Voter: true})
	}
	for _, id := range nonvoters {
		out = append(out, metastore.Server{ID: string(id)})
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, members, voters, nonvoters, silent string
		dead, refused                            string
		after, quorum                            int
	}{
		{"nobody is silent", "abc", "abc", "", "", "", "", 3, 2},
		{"one of three", "abc", "abc", "", "c", "c", "", 2, 2},
		{"two of three: this node's fault", "abc", "abc", "", "bc", "", "bc", 1, 2},
		{"two of five are marked", "abcde", "abcde", "", "de", "de", "", 3, 3},
		{"three of five", "abcde", "abcde", "", "cde", "", "cde", 2, 3},
		{"one of five, two dead already", "abcDE", "abcde", "", "c", "", "c", 2, 3},
		{"one of two", "ab", "ab", "", "b", "", "b", 1, 2},
		{"a voter without record is not alive", "ab", "abc", "", "b", "", "b", 1, 2},
		{"others are judged all the same", "abcxy", "abc", "x", "bcxy", "xy", "bc", 1, 2},
		{"others alone", "axyz", "a", "xy", "xyz", "xyz", "", 1, 1},
		{"the leader counts itself, whatever its record says", "Abc", "abc", "", "c", "c", "", 2, 2},
	} {
		v := judge(membersOf(c.silent), serversOf(c.voters, c.nonvoters), membersOf(c.members), "a")
		dead := ""
		for _, m := range v.dead {
			dead += m.ID
		}
		if dead != c.dead || strings.Join(v.refused, "") != c.refused || v.aliveAfter != c.after || v.quorum != c.quorum || v.voters != len(c.voters) {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

func TestRegistered(t *testing.T) {
	for _, c := range []struct {
		members, voters, nonvoters  string
		wantVoters, recorded, alive int
	}{
		{"", "abc", "", 3, 0, 0},
		{"ab", "abc", "", 3, 2, 2},
		{"aBc", "abc", "", 3, 3, 2},
		{"axy", "ab", "x", 2, 1, 1},
	} {
		if v, r, a := registered(serversOf(c.voters, c.nonvoters), membersOf(c.members)); v != c.wantVoters || r != c.recorded || a != c.alive {
			t.Errorf("%+v: %d, %d, %d", c, v, r, a)
		}
	}
}

func TestInsertion(t *testing.T) {
	v := &model.TopicView{Topic: model.Topic{Name: "t", ID: "0123456789abcdef0123456789abcdef"}, Owners: []string{"x", "", "x", "", ""}}
	entry, owners := insertion(v, []string{"a", "b"}, func(string) int { return 0 }, []string{"", "a", "", "", "b"})
	want := metastore.InsertPlacement{Topic: "t", ID: v.ID, First: 1, Owners: []string{"b", "", "a", "a"}}
	if !reflect.DeepEqual(entry, want) || !reflect.DeepEqual(owners, []string{"x", "b", "x", "a", "a"}) {
		t.Errorf("%+v, %v", entry, owners)
	}
	v.Owners = []string{"x"}
	if entry, owners := insertion(v, []string{"a"}, func(string) int { return 0 }, nil); entry.Owners != nil || owners[0] != "x" {
		t.Errorf("nothing to place: %+v, %v", entry, owners)
	}
}

func BenchmarkDeal(b *testing.B) {
	ids := []string{"a", "b", "c", "d", "e"}
	away := spread(108, ids, func(string) int { return 0 })
	b.ReportAllocs()
	for b.Loop() {
		deal(108, ids, func(string) int { return 0 }, away)
	}
}
