package router

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/narad-mq/narad/internal/metastore"
	"github.com/narad-mq/narad/internal/model"
)

// TestTable: what it answers, and that it follows views and members, but not heartbeats.
func TestTable(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		tab := NewTable("n0", c.nodes[0].replica)
		c.create("t", "n0", "n1", "stranger", "")
		for p, want := range []Target{
			{ID: "n0", Addr: "host0:7942", Alive: true, Local: true}, {ID: "n1", Addr: "host1:7942", Alive: true}, {ID: "stranger"},
		} {
			if got, err := tab.Owner("t", p); err != nil || got != want {
				t.Errorf("owner of %d: %+v %v", p, got, err)
			}
		}
		for _, tc := range []struct {
			topic string
			p     int
			want  error
		}{{"t", 3, model.ErrUnavailable}, {"t", 4, model.ErrInvalid}, {"t", -1, model.ErrInvalid}, {"u", 0, model.ErrTopicNotFound}} {
			if _, err := tab.Owner(tc.topic, tc.p); !errors.Is(err, tc.want) {
				t.Errorf("owner of %s/%d: %v, want %v", tc.topic, tc.p, err, tc.want)
			}
		}
		before := tab.members()
		c.edit("n1", func(m *model.Member) { m.HeartbeatAt, m.Draining, m.Build = 5, true, "3.2.0" })
		if tab.members() != before {
			t.Error("a heartbeat made the routes anew")
		}
		view, _ := c.all.Topic("t")
		r := tab.route(view)
		if !r.local || !slices.Equal(r.others, []Target{{ID: "n1", Addr: "host1:7942", Alive: true}}) {
			t.Errorf("route %+v", r)
		}
		if tab.route(view) != r {
			t.Error("the route is not kept")
		}
		c.mark("n1", model.MemberDead)
		if tab.route(view).alive() || !r.alive() {
			t.Error("death does not show in the route, or changes one that was handed out")
		}
		c.edit("n1", func(m *model.Member) { m.Status, m.Addr = model.MemberAlive, "elsewhere:1" })
		if o, _ := tab.Owner("t", 1); o.Addr != "elsewhere:1" {
			t.Errorf("address %+v", o)
		}
		c.create("t", "n2", "n1", "n2")
		view, _ = c.all.Topic("t")
		if r := tab.route(view); r.local || len(r.others) != 2 || r.others[0].ID != "n1" {
			t.Errorf("route after a move: %+v", r)
		}
		c.nodes[0].replica.behind.Store(true)
		if _, err := tab.Owner("t", 0); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("RT-7: %v", err)
		}
		if got := tab.Members(); len(got) != 3 || !got[0].Local {
			t.Errorf("members %+v", got)
		}
	})
}

// TestTableIsBounded: topics that come and go do not pile up.
func TestTableIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &registryOfAll{views: map[string]*model.TopicView{}}
		tab := NewTable("n0", &replica{registryOfAll: all})
		for i := range routesMax + 100 {
			tab.route(&model.TopicView{Topic: model.Topic{Name: fmt.Sprint(i)}})
		}
		n := 0
		for range tab.members().routes.Range {
			n++
		}
		if n > 100 {
			t.Errorf("%d routes remembered", n)
		}
	})
}

func BenchmarkTable(b *testing.B) {
	all := &registryOfAll{views: map[string]*model.TopicView{}}
	for i := range 5 {
		all.members = append(all.members, model.Member{ID: fmt.Sprint("n", i), Addr: "host:1", Status: model.MemberAlive})
	}
	all.version[metastore.DomainMembers].Add(1)
	v := &model.TopicView{Topic: model.Topic{Name: "t", Partitions: 12}}
	for p := range 12 {
		v.Owners = append(v.Owners, fmt.Sprint("n", p%5))
	}
	all.views["t"] = v
	tab := NewTable("n0", &replica{registryOfAll: all})
	b.Run("owner", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if o, err := tab.Owner("t", 7); err != nil || o.ID != "n2" {
				b.Fatal(o, err)
			}
		}
	})
	b.Run("route", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if r := tab.route(v); len(r.others) != 4 {
				b.Fatal(r)
			}
		}
	})
}
