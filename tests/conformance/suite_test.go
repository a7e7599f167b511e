// Package conformance holds the HTTP API to its specification: one test per rule id of
// spec/http-api, run over TCP against the real binary, on one node and through a node of a
// cluster that neither owns nor leads, or against any node that NARAD_CONFORMANCE_URL names.
// See README.md.
package conformance

import (
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

// What the suite is told.
const (
	envURL      = "NARAD_CONFORMANCE_URL"      // base URL of the node to test; unset: nodes of its own
	envUser     = "NARAD_CONFORMANCE_USER"     // the root admin of that node; unset: it has security off
	envPassword = "NARAD_CONFORMANCE_PASSWORD" // its password
	envReport   = "NARAD_CONFORMANCE_REPORT"   // file the report is written to
)

// TestMain lets more checks run at once than there are processors: mostly they wait for
// a node's disk, or for time to pass.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(2*runtime.GOMAXPROCS(0) + 2)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// rootPassword is the root admin's on the suite's own nodes.
const rootPassword = "conformance-root-password"

// openAPIName is the subtest of the API's description.
const openAPIName = "openapi.yaml"

// check shows that a server keeps one rule.
type check func(p *probe)

// checks is every check by the id it shows.
func checks() map[string]check {
	all := map[string]check{}
	for _, part := range []map[string]check{
		pipelineChecks, commonChecks, limitChecks, healthChecks, topicChecks, produceChecks,
		batchProduceChecks, consumeChecks, batchConsumeChecks, replayChecks, ackChecks,
		accessChecks, userChecks, schemaChecks, compatibilityChecks, linkChecks,
	} {
		for id, c := range part {
			if all[id] != nil {
				panic("two checks for " + id)
			}
			all[id] = c
		}
	}
	return all
}

// suite is one run: what it asks, and what came of it.
type suite struct {
	t        *testing.T
	external *server // from the environment, or nil
	cluster  bool    // asks a node that neither owns nor leads

	mu      sync.Mutex // guards the rest
	nodes   map[string]*server
	results map[string]string // id to pass, fail or why it was skipped
}

func newSuite(t *testing.T) *suite {
	s := &suite{t: t, nodes: map[string]*server{}, results: map[string]string{}}
	if base := os.Getenv(envURL); base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Host == "" {
			t.Fatalf("%s=%q is no base URL", envURL, base)
		}
		s.external = &server{base: u, user: os.Getenv(envUser), password: os.Getenv(envPassword)}
	}
	return s
}

// TestConformance runs every check as a subtest named by its id.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the real binary for many seconds")
	}
	one := newSuite(t)
	cluster := &suite{t: t, cluster: true, nodes: map[string]*server{}, results: map[string]string{}}
	t.Cleanup(func() { // after the parallel subtests
		report(t, readIDs(t), one, cluster)
		theDocument().conclude(t, one.whole(checks()), cluster.whole(clusterOnly()))
	})
	all := checks()
	all[openAPIName] = openAPI // no id, and runs as if it were one
	one.run(t, all)
	if one.external == nil {
		t.Run("cluster", cluster.runCluster)
	}
}

// runCluster runs the same checks and more through a node that neither owns nor leads, and
// the scenarios.
func (s *suite) runCluster(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("gives every node an address of its own, which needs Linux")
	}
	t.Parallel()
	s.t = t
	t.Run("all", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(scenarios)) {
			s.play(t, name)
		}
		t.Run("bystander", func(t *testing.T) {
			t.Parallel()
			all := checks()
			maps.Copy(all, clusterChecks)
			s.run(t, all)
		})
	})
	for _, node := range s.nodes {
		(&probe{T: t, suite: s, id: "aside"}).aside(node)
		for _, mate := range node.mates {
			for _, line := range mate.LogLines("http server error") {
				t.Log(mate.ID, line) // shown if something failed
			}
		}
	}
}

// run runs checks as parallel subtests.
func (s *suite) run(t *testing.T, all map[string]check) {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			p := &probe{T: t, suite: s, id: id}
			t.Cleanup(p.record)
			all[id](p)
		})
	}
}

// whole reports whether every check has run to its end.
func (s *suite) whole(all map[string]check) bool {
	for id := range all {
		if s.result(id) != "pass" {
			return false
		}
	}
	return s.result(openAPIName) == "pass"
}

// probe is the work of one check.
type probe struct {
	*testing.T
	suite  *suite
	id     string
	made   int    // topics and users so far
	reason string // why it was skipped
}

func (p *probe) record() {
	result := "pass"
	switch {
	case p.Failed():
		result = "fail"
	case p.reason != "":
		result = "skipped: " + p.reason
	}
	p.suite.mu.Lock()
	defer p.suite.mu.Unlock()
	if p.suite.results[p.id] != "fail" {
		p.suite.results[p.id] = result
	}
}

// skip ends a check that this target cannot show.
func (p *probe) skip(reason string) {
	p.Helper()
	p.reason = reason
	p.Skip(reason)
}

// server is the node most checks ask, with credentials if it wants any: default
// configuration.
func (p *probe) server() *server {
	p.Helper()
	if e := p.suite.external; e != nil {
		return e
	}
	return p.shared("default")
}

// open is a node with security off.
func (p *probe) open() *server {
	p.Helper()
	if e := p.suite.external; e != nil {
		if e.user != "" {
			p.skip("needs a node with security off")
		}
		return e
	}
	return p.shared("default")
}

// secured is a node with security on, asked as its root admin.
func (p *probe) secured() *server {
	p.Helper()
	if e := p.suite.external; e != nil {
		if e.user == "" {
			p.skip("needs a node with security on")
		}
		return e
	}
	return p.shared("secured", secure()...)
}

// files is a node whose data directory the check may look into or damage; see owner.
func (p *probe) files() *server {
	p.Helper()
	p.ourFiles()
	return p.shared("default")
}

func (p *probe) ourFiles() {
	p.Helper()
	if p.suite.external != nil {
		p.skip("needs the node's files")
	}
}

// owner is the node that has a partition's files.
func (p *probe) owner(s *server, topic string, partition int) *testutil.Node {
	p.Helper()
	if s.mates == nil {
		return s.node
	}
	id := p.describe(s, topic).Stats[partition].Owner
	i := slices.IndexFunc(s.mates, func(n *testutil.Node) bool { return n.ID == id })
	if i < 0 {
		p.Fatalf("%s/%d is owned by %q", topic, partition, id)
	}
	return s.mates[i]
}

// Settings of the node of tight.
const (
	tightConsumes = 4
	tightProduces = 3
	tightBudget   = 2 << 20
	tightWait     = 3 * time.Second
)

// tight is a node with small limits, for this check alone until it ends: its limits
// are on what one address has in flight.
func (p *probe) tight() *server {
	p.Helper()
	p.ownOnly()
	s := p.shared("tight",
		fmt.Sprint("NARAD_HTTP_MAX_CONSUME_IN_FLIGHT_PER_IDENTITY=", tightConsumes),
		fmt.Sprint("NARAD_HTTP_MAX_PRODUCE_IN_FLIGHT_PER_IDENTITY=", tightProduces),
		fmt.Sprint("NARAD_HTTP_MAX_BATCH_BODY_BYTES_IN_FLIGHT=", tightBudget),
		fmt.Sprint("NARAD_HTTP_MAX_CONSUME_WAIT=", tightWait))
	s.exclusive.Lock()
	p.Cleanup(s.exclusive.Unlock)
	return s
}

// own prepares a node for this check alone; start runs it.
func (p *probe) own(env ...string) *testutil.Node {
	p.Helper()
	p.ownOnly()
	n := testutil.NewNode(p, p.TempDir())
	n.Env = env
	return n
}

func (p *probe) ownOnly() {
	p.Helper()
	p.oneNode()
	if p.suite.external != nil {
		p.skip("needs a node of its own configuration")
	}
}

// oneNode skips, in a cluster, what one node shows as well: what it does for itself, before
// any other node comes in.
func (p *probe) oneNode() {
	p.Helper()
	if p.suite.cluster {
		p.skip("shown on one node")
	}
}

func secure() []string {
	return []string{"NARAD_SECURITY_ENABLED=true", "NARAD_ADMIN_PASSWORD=" + rootPassword}
}

// shared starts a node for all checks that ask for the name.
func (p *probe) shared(name string, env ...string) *server {
	p.Helper()
	s := p.suite
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil {
		return n
	}
	lent := &lender{TB: p, owner: s.t, starting: true}
	n := p.form(lent, env...)
	lent.starting = false
	s.nodes[name] = n
	return n
}

// form starts a node, or the cluster that it is in.
func (p *probe) form(lent *lender, env ...string) *server {
	p.Helper()
	if p.suite.cluster {
		return p.formBystander(lent, env...)
	}
	node := testutil.NewNode(lent, lent.TempDir())
	node.Env = env
	node.Start()
	if slices.Contains(env, secure()[0]) {
		return p.asRoot(node, rootPassword)
	}
	return reach(node)
}

// lender lets a node that one check starts outlive it. The node's log is shown if it
// did not start.
type lender struct {
	testing.TB // the check that starts the node
	owner      *testing.T
	starting   bool
}

func (l *lender) Cleanup(f func()) { l.owner.Cleanup(f) }
func (l *lender) TempDir() string  { return l.owner.TempDir() }
func (l *lender) Failed() bool     { return l.starting }
func (l *lender) Log(args ...any)  { l.owner.Log(args...) }

// newTopic makes a topic for this check; fields are further ones of the create, such
// as `"partitions":4`.
func (p *probe) newTopic(s *server, fields ...string) string {
	p.Helper()
	name := p.name()
	body := strings.Join(append([]string{fmt.Sprintf(`"name":%q`, name)}, fields...), ",")
	p.ask(s, "POST /v1/topics", "{"+body+"}").is(201, "")
	p.dropAtEnd(name)
	return name
}

// name is a fresh name for a topic or a user.
func (p *probe) name() string {
	p.made++
	return fmt.Sprintf("conformance-%s-%d-%s", strings.ToLower(p.id), p.made, unique())
}

// dropAtEnd deletes a topic of somebody else's node when the check is over.
func (p *probe) dropAtEnd(topic string) {
	if e := p.suite.external; e != nil {
		p.Cleanup(func() { p.ask(e, "DELETE /v1/topics/"+topic, "") })
	}
}
