package conformance

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// needs is what showing a rule takes, by the word of ids.txt, and how the report says
// so of a rule that this suite does not show.
var needs = map[string]string{
	"node":    "not checked", // a check of this suite, which replaces the text by its result
	"cluster": "not checked", // the same, in a cluster
	"later":   "needs moves and decommission",
	"remote":  "needs a remote cluster",
	"parts":   "shown by another test",
	"rule":    "binds clients and releases",
	"void":    "cannot happen here",
}

// rule is a line of ids.txt.
type rule struct {
	id, need, title string
}

// readIDs reads ids.txt: every id of spec/http-api.
func readIDs(t *testing.T) []rule {
	t.Helper()
	b, err := os.ReadFile("ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []rule
	for i, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(line, " | ", 3)
		if len(f) != 3 || needs[f[1]] == "" || f[2] == "" {
			t.Fatalf("ids.txt:%d: %q: want id | need | title", i+1, line)
		}
		out = append(out, rule{f[0], f[1], f[2]})
	}
	return out
}

// Every id stands once, an id has a check exactly if nodes can show it, and where a rule is
// shown by another test, that test exists.
func TestIDs(t *testing.T) {
	all, inCluster := checks(), map[string]bool{}
	for id := range clusterOnly() {
		inCluster[id] = true
	}
	seen := map[string]bool{}
	for _, r := range readIDs(t) {
		if seen[r.id] {
			t.Errorf("%s stands twice in ids.txt", r.id)
		}
		seen[r.id] = true
		switch {
		case r.need == "node" && all[r.id] == nil:
			t.Errorf("%s has no check", r.id)
		case r.need != "node" && all[r.id] != nil:
			t.Errorf("%s has a check, and ids.txt says it %s", r.id, needs[r.need])
		case r.need == "cluster" && !inCluster[r.id]:
			t.Errorf("%s has no check in a cluster", r.id)
		case r.need != "cluster" && inCluster[r.id]:
			t.Errorf("%s has a check in a cluster, and ids.txt says it %s", r.id, needs[r.need])
		case r.need == "parts":
			shownBy(t, r)
		}
	}
	for id := range inCluster {
		all[id] = nil
	}
	for id := range all {
		if !seen[id] {
			t.Errorf("there is a check for %s, which ids.txt does not list", id)
		}
	}
}

// shownBy holds a title that ends in "(package TestName)" to the tree.
func shownBy(t *testing.T, r rule) {
	t.Helper()
	m := regexp.MustCompile(`\((\S+) (Test\w+)\)$`).FindStringSubmatch(r.title)
	if m == nil {
		t.Errorf("%s needs parts: its title must end in (package TestName)", r.id)
		return
	}
	files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(m[1]), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("func "+m[2]+"(")) {
			return
		}
	}
	t.Errorf("%s: %s has no %s", r.id, m[1], m[2])
}

// report writes what became of each id on one node and in a cluster, and logs the sum.
func report(t *testing.T, ids []rule, one, cluster *suite) {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tONE NODE\tIN A CLUSTER\tRULE")
	sum := map[string]int{}
	for _, r := range ids {
		alone, many := one.result(r.id), cluster.result(r.id)
		sum[outcome(r, alone, many)]++
		if alone+many == "" {
			alone = needs[r.need]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.id, cmp.Or(alone, "-"), cmp.Or(many, "-"), r.title)
	}
	_ = w.Flush()
	parts := []string{}
	for _, k := range []string{"pass", "fail"} {
		parts = append(parts, fmt.Sprint(sum[k], " ", k))
		delete(sum, k)
	}
	for k, n := range sum {
		parts = append(parts, fmt.Sprint(n, " ", k))
	}
	slices.Sort(parts[2:])
	line := strings.Join(parts, ", ")
	t.Log(line)
	if name := os.Getenv(envReport); name != "" {
		if err := os.WriteFile(name, []byte(line+"\n\n"+table.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// outcome sums an id up: one failure fails it, and a pass anywhere else passes it.
func outcome(r rule, results ...string) string {
	switch {
	case slices.Contains(results, "fail"):
		return "fail"
	case slices.Contains(results, "pass"):
		return "pass"
	}
	for _, result := range results {
		if result != "" {
			return strings.SplitN(result, ":", 2)[0]
		}
	}
	return needs[r.need]
}

// result is what became of an id, "" if nothing did.
func (s *suite) result(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results[id]
}
