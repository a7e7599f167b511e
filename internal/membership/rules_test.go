package membership

import (
	"errors"
	"slices"
	"testing"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

func TestPromotionRules(t *testing.T) {
	alive := &model.Member{ID: "n3", Status: model.MemberAlive}
	for _, c := range []struct {
		name string
		edit func(*candidate)
		want string
	}{
		{"all hold", func(*candidate) {}, ""},
		{"a young leader", func(c *candidate) { c.led = ledMin - 1 }, "the leader has led for less than 12s"},
		{"a leader of 12 s", func(c *candidate) { c.led = ledMin }, ""},
		{"not the leader", func(c *candidate) { c.led = 0 }, "the leader has led for less than 12s"},
		{"heartbeats fail", func(c *candidate) { c.failing = errors.New("x509") }, "the leader's heartbeats to it are failing: x509"},
		{"no record", func(c *candidate) { c.record = nil }, "it has no member record yet"},
		{"dead", func(c *candidate) { c.record = &model.Member{Status: model.MemberDead} }, "its member record says dead"},
		{"draining", func(c *candidate) { c.record = &model.Member{Status: model.MemberAlive, Draining: true} }, "it is draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := candidate{led: 2 * ledMin, ledMin: ledMin, record: alive}
			c.edit(&x)
			if got := x.deferral(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// voters and non-voters by id: a lower-case letter is a voter, an upper-case one none.
func configuration(s string) (out []metastore.Server) {
	for _, id := range s {
		out = append(out, metastore.Server{ID: string(id), Voter: id >= 'a'})
	}
	return out
}

func TestQuorumWithout(t *testing.T) {
	for _, c := range []struct {
		servers, without, answer string
		want                     bool
	}{
		{"abc", "b", "c", true},
		{"abc", "b", "", false},
		{"abc", "b", "b", false}, // the one that is left out does not count
		{"ab", "b", "", true},    // the leader alone is a quorum of one
		{"a", "b", "", true},
		{"abcd", "b", "c", true},
		{"abcd", "b", "", false},
		{"abcde", "b", "cd", true},
		{"abcde", "b", "c", false}, // two of four are no majority
		{"abcDE", "b", "DE", false},
		{"abcDE", "b", "c", true},
		{"abc", "Z", "b", true},
		{"abc", "Z", "", false},
	} {
		answers := func(s metastore.Server) bool { return slices.Contains([]rune(c.answer), rune(s.ID[0])) }
		if got := sufficient(configuration(c.servers), "a", c.without, answers); got != c.want {
			t.Errorf("%s without %s, %q answering: %v", c.servers, c.without, c.answer, got)
		}
	}
}

// Taking a vote where sufficient allows it leaves a leader that can commit; giving one to
// a server that answers does, too. Every configuration of up to seven voters, every set
// of servers that answer among which the leader leads today.
func TestNoDecisionBreaksAQuorum(t *testing.T) {
	const ids = "abcdefg"
	for n := 1; n <= len(ids); n++ {
		servers := configuration(ids[:n])
		for set := range 1 << n {
			if set&1 == 0 {
				continue // a leads
			}
			answers := func(s metastore.Server) bool { return set&(1<<(s.ID[0]-'a')) != 0 }
			reached := 0
			for _, s := range servers {
				if answers(s) {
					reached++
				}
			}
			for i := 1; i < n; i++ {
				without := servers[i].ID
				left, leftReached := n-1, reached
				if answers(servers[i]) {
					leftReached--
				}
				if sufficient(servers, "a", without, answers) != (2*leftReached > left) {
					t.Fatalf("%s without %s, set %b", ids[:n], without, set)
				}
			}
			if 2*reached > n && 2*(reached+1) <= n+1 {
				t.Fatalf("%d of %d lead, and with one more voter that answers would not", reached, n)
			}
		}
	}
}
