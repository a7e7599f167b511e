package metastore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Five stores under a stream of creates from every node: a follower is cut off and
// healed, the leader is killed with proposals under way and comes back. Whatever was
// acknowledged is there on all of them, which agree.
func TestClusterOfFiveLosesNothingToKillsAndCuts(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, nil)
	var (
		mu    sync.Mutex
		acked []string
	)
	// load creates topics through some nodes until each had a few answered.
	load := func(prefix string, through []int) (wait func()) {
		var wg sync.WaitGroup
		for _, i := range through {
			s := c.nodes[i].store
			wg.Go(func() {
				for n := range 25 {
					name := fmt.Sprintf("%s-%d-%02d", prefix, i, n)
					if _, err := s.Propose(context.Background(), create(name)); err == nil {
						mu.Lock()
						acked = append(acked, name)
						mu.Unlock()
					}
				}
			})
		}
		return wg.Wait
	}

	cutOff := c.follower()
	leader := c.waitLeader()
	var rest []int
	for i := range c.nodes {
		if i != cutOff && i != leader {
			rest = append(rest, i)
		}
	}
	c.isolate(cutOff)
	load("cut", rest)()
	c.heal(cutOff)

	wait := load("kill", rest)
	c.kill(leader)
	wait()
	c.waitLeader()
	load("after", rest)()
	c.start(leader)
	c.converge()

	mu.Lock()
	defer mu.Unlock()
	if len(acked) < 50 {
		t.Fatalf("only %d creates were acknowledged: the run proves little", len(acked))
	}
	for i, n := range c.nodes {
		for _, name := range acked {
			if _, ok := n.store.Topic(name); !ok {
				t.Errorf("node %d lacks %s, which was acknowledged", i, name)
			}
		}
	}
}

// F26 and F28: the metadata files of one node of three are damaged, lost or from the
// past. It rebuilds from its peers; the others lose nothing and take nothing from it.
func TestF26F28OneOfThreeWithDamagedFiles(t *testing.T) {
	t.Parallel()
	half := func(t *testing.T, path string) { tear(t, path, 0.5) }
	lose := func(t *testing.T, path string) { must(t, os.RemoveAll(path)) }
	flipMiddle := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		must(t, err)
		for i := len(b) / 2; i < len(b)/2+64; i++ {
			b[i] ^= 0xff
		}
		must(t, os.WriteFile(path, b, 0o600))
	}
	for _, tc := range []struct {
		name, file string
		harm       func(*testing.T, string)
	}{
		{"fsm lost", "fsm.db", lose}, {"fsm cut", "fsm.db", half}, {"fsm flipped", "fsm.db", flipMiddle},
		{"raft lost", "raft.db", lose}, {"raft cut", "raft.db", half},
		{"snapshots lost", "snapshots", lose}, {"fsm from the past", "fsm.db", nil}, {"raft from the past", "raft.db", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, nil)
			i := c.follower()
			var names []string
			more := func(prefix string) {
				for n := range 10 {
					names = append(names, fmt.Sprintf("%s%d", prefix, n))
					c.propose(c.waitLeader(), create(names[len(names)-1]))
				}
			}
			more("before")
			c.converge()
			c.kill(i)
			path := filepath.Join(c.nodes[i].dir, tc.file)
			old := filepath.Join(t.TempDir(), tc.file)
			if tc.harm == nil {
				must(t, copyFile(path, old))
			}
			c.start(i)
			more("between")
			c.converge()
			c.kill(i)
			if tc.harm == nil {
				must(t, os.RemoveAll(path))
				must(t, copyFile(old, path))
			} else {
				tc.harm(t, path)
			}
			c.start(i, func(o *Options) { o.Join = true })
			more("after")
			c.converge()
			for j, n := range c.nodes {
				for _, name := range names {
					if _, ok := n.store.Topic(name); !ok {
						t.Errorf("node %d lacks %s", j, name)
					}
				}
			}
		})
	}
}
