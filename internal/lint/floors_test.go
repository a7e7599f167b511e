package lint

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const modulePath = "github.com/narad-mq/narad"

// floor is the place of a package in the house: it imports from lower floors only,
// and from its own what also lists.
type floor struct {
	level int
	also  []string
}

// floors is the table of design.md section 2, by directory.
var floors = map[string]floor{
	"cmd/narad": {level: 7},

	"internal/httpapi": {level: 6},

	"internal/router":     {level: 5},
	"internal/topics":     {level: 5},
	"internal/users":      {level: 5},
	"internal/controller": {level: 5},
	"internal/membership": {level: 5},
	"internal/fanout":     {level: 5},
	"internal/remote":     {level: 5, also: []string{"internal/fanout"}},
	"internal/mover":      {level: 5},
	"internal/reclaim":    {level: 5},

	"internal/broker":  {level: 4},
	"internal/ingress": {level: 4},

	"internal/partition": {level: 3},
	"internal/metastore": {level: 3},
	"internal/peer":      {level: 3},

	"internal/wal":       {level: 2},
	"internal/commitlog": {level: 2},
	"internal/lease":     {level: 2},
	"internal/position":  {level: 2},
	"internal/schema":    {level: 2},
	"internal/access":    {level: 2},
	"internal/noderpc":   {level: 2},

	"internal/model":     {level: 1},
	"internal/disk":      {level: 1},
	"internal/clock":     {level: 1},
	"internal/config":    {level: 1, also: []string{"internal/model"}},
	"internal/telemetry": {level: 1, also: []string{"internal/clock"}},
}

// beside are the directories that stand beside the house. What is in them may
// import anything, unless a rule below says otherwise; of the house, only tests may
// import internal/testutil, and nothing else of these.
var beside = []string{"client", "bench", "tests", "internal/testutil", "internal/lint", "internal/deps"}

func isBeside(dir string) bool {
	for _, b := range beside {
		if dir == b || strings.HasPrefix(dir, b+"/") {
			return true
		}
	}
	return false
}

// checkImports holds the tree against the table.
func checkImports(files []*source) []finding {
	var out []finding
	for _, f := range files {
		from, known := floors[f.dir()]
		if !known && !isBeside(f.dir()) && f.dir() != "." {
			out = append(out, f.at(f.ast.Package, "package %s stands on no floor: give it its place in design.md section 2 and in floors (internal/lint/floors_test.go)", f.dir()))
			continue
		}
		for _, spec := range f.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			to, ours := strings.CutPrefix(name, modulePath+"/")
			if !ours || to == f.dir() {
				continue
			}
			if why := refuseImport(f, from, to); why != "" {
				out = append(out, f.at(spec.Pos(), "%s", why))
			}
		}
	}
	return out
}

func refuseImport(f *source, from floor, to string) string {
	switch {
	case f.dir() == "client" && !f.test():
		return "client is a public package of its own: it imports nothing of this module; copy the few lines you need"
	case to == "internal/testutil":
		if f.test() || isBeside(f.dir()) {
			return ""
		}
		return "only tests import internal/testutil: move what product code needs to the package that owns it"
	case isBeside(f.dir()):
		return ""
	case f.dir() == "cmd/narad" && to == "client":
		return ""
	case isBeside(to):
		return fmt.Sprintf("%s imports %s, which stands beside the house: nothing of the house stands on it", f.dir(), to)
	}
	target, known := floors[to]
	if !known {
		return fmt.Sprintf("%s imports %s, which has no floor: add it to floors (internal/lint/floors_test.go)", f.dir(), to)
	}
	if target.level < from.level {
		return ""
	}
	for _, also := range from.also {
		if also == to {
			return ""
		}
	}
	return fmt.Sprintf("%s (floor %d) imports %s (floor %d): declare the interface you need in %s and have cmd/narad pass the value in, or move the shared part to a lower floor",
		f.dir(), from.level, to, target.level, path.Base(f.dir()))
}
