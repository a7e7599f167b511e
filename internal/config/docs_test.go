package config

import (
	"os"
	"strings"
	"testing"
)

// The table in docs/configuration.md has exactly the keys there are, with their
// variables and defaults.
func TestDocsListEveryKeyWithItsDefault(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		rows[cells[1]] = cells
	}
	c := Default()
	for _, k := range c.keys() {
		row, ok := rows[k.name]
		if !ok {
			t.Errorf("%s is not in docs/configuration.md", k.name)
			continue
		}
		delete(rows, k.name)
		if row[2] != k.env {
			t.Errorf("%s: variable %q in the docs, %q in the code", k.name, row[2], k.env)
		}
		if k.name != "cluster.node_id" && row[3] != value(k.field) {
			t.Errorf("%s: default %q in the docs, %q in the code", k.name, row[3], value(k.field))
		}
	}
	for name := range rows {
		t.Errorf("docs/configuration.md lists %s, which does not exist", name)
	}
}
