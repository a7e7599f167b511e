package lint

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// rules are the checks over the parsed tree, by the name of their subtest.
var rules = map[string]func([]*source) []finding{
	"imports":         checkImports,
	"time":            checkTime,
	"files":           checkFiles,
	"errorf":          checkErrorf,
	"file length":     checkFileLength,
	"function length": checkFuncLength,
	"documentation":   checkDocs,
	"package state":   checkVars,
}

func TestHouseRules(t *testing.T) {
	files := load(t)
	for name, check := range rules {
		t.Run(name, func(t *testing.T) { report(t, check(files)) })
	}
	t.Run("dependencies", func(t *testing.T) {
		b, err := os.ReadFile(moduleRoot + "/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		report(t, checkModule(string(b)))
	})
}

func report(t *testing.T, found []finding) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// broken runs a check and leaves out what it says about unused exceptions: an
// example uses none.
func broken(check func([]*source) []finding, files []*source) []finding {
	return slices.DeleteFunc(check(files), func(f finding) bool { return f.file == "internal/lint/exceptions_test.go" })
}

// example is a file and the start of the text of each finding it must produce.
type example struct {
	rule, path, src string
	want            []string
}

const long = "package x\n\nfunc f() {\n"

var examples = []example{
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/internal/model"`, nil},
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/internal/broker"`, []string{"internal/wal (floor 2) imports internal/broker (floor 4)"}},
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/internal/lease"`, []string{"internal/wal (floor 2) imports internal/lease (floor 2)"}},
	{"imports", "internal/wal/a_test.go", `package wal; import _ "github.com/narad-mq/narad/internal/broker"`, []string{"internal/wal (floor 2)"}},
	{"imports", "internal/wal/a_test.go", `package wal_test; import _ "github.com/narad-mq/narad/internal/wal"`, nil},
	{"imports", "internal/wal/a_test.go", `package wal; import _ "github.com/narad-mq/narad/internal/testutil"`, nil},
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/internal/testutil"`, []string{"only tests import internal/testutil"}},
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/client"`, []string{"internal/wal imports client"}},
	{"imports", "internal/wal/a.go", `package wal; import _ "github.com/narad-mq/narad/internal/nosuch"`, []string{"internal/wal imports internal/nosuch, which has no floor"}},
	{"imports", "internal/remote/a.go", `package remote; import _ "github.com/narad-mq/narad/internal/fanout"`, nil},
	{"imports", "internal/fanout/a.go", `package fanout; import _ "github.com/narad-mq/narad/internal/remote"`, []string{"internal/fanout (floor 5)"}},
	{"imports", "internal/util/a.go", `package util`, []string{"package internal/util stands on no floor"}},
	{"imports", "client/a.go", `package client; import _ "github.com/narad-mq/narad/internal/model"`, []string{"client is a public package"}},
	{"imports", "client/a_test.go", `package client_test; import _ "github.com/narad-mq/narad/client"`, nil},
	{"imports", "cmd/narad/a.go", `package main; import _ "github.com/narad-mq/narad/client"; import _ "github.com/narad-mq/narad/internal/httpapi"`, nil},
	{"imports", "tests/crash/a.go", `package crash; import _ "github.com/narad-mq/narad/internal/testutil"`, nil},

	{"time", "internal/wal/a.go", `package wal; import "time"; var x = time.Second`, nil},
	{"time", "internal/wal/a.go", `package wal; import "time"; func f() { time.Now(); time.Since(t) }`, []string{"time.Now", "time.Since"}},
	{"time", "internal/wal/a.go", `package wal; import tm "time"; func f() { <-tm.After(1) }`, []string{"time.After"}},
	{"time", "internal/wal/a.go", `package wal; import "time"; var now = time.Now`, []string{"time.Now"}},
	{"time", "internal/wal/a.go", `package wal; func f() { time.Now() }`, nil},
	{"time", "internal/clock/a.go", `package clock; import "time"; func f() { time.Now(); time.NewTimer(1) }`, nil},
	{"time", "internal/clock/a.go", `package clock; import "time"; func f() { time.Sleep(1) }`, []string{"time.Sleep"}},
	{"time", "internal/wal/a_test.go", `package wal; import "time"; func f() { time.Now(); time.NewTimer(1) }`, nil},
	{"time", "tests/crash/a_test.go", `package crash; import "time"; func f() { time.Sleep(1) }`, []string{"time.Sleep"}},
	{"time", "internal/wal/a_test.go", `package wal; import ("time"; "testing/synctest"); func f() { synctest.Test(t, func() { time.Sleep(1) }); time.Sleep(2) }`, []string{"time.Sleep"}},
	{"time", "internal/wal/a_test.go", `package wal; import ("time"; "testing/synctest"); func after() { time.Sleep(1); synctest.Wait() }; func f() { time.Sleep(2); g(func() { synctest.Wait() }) }`, []string{"time.Sleep"}},

	{"files", "internal/wal/a.go", `package wal; import "os"; func f() { os.Getpid(); _ = os.O_RDWR; _ = os.ErrNotExist }`, nil},
	{"files", "internal/wal/a.go", `package wal; import "os"; func f() { os.Open("x"); g(os.Remove) }`, []string{"os.Open", "os.Remove"}},
	{"files", "internal/wal/a_test.go", `package wal; import "os"; func f() { os.RemoveAll("x") }`, nil},
	{"files", "internal/disk/a.go", `package disk; import "os"; func f() { os.Rename("x", "y"); os.RemoveAll("x") }`, []string{"os.RemoveAll"}},
	{"files", "cmd/narad/a.go", `package main; import "os"; func f() { os.ReadFile("x"); os.RemoveAll("x") }`, []string{"os.RemoveAll"}},
	{"files", "internal/reclaim/a.go", `package reclaim; import "os"; func f() { os.RemoveAll("x") }`, nil},

	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%d of %s: %w", 1, name, err)`, nil},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%d: %v", 1, err)`, []string{"fmt.Errorf formats an error with %v"}},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("100%% %*d " + "%s", 3, 1, cerr)`, []string{"fmt.Errorf formats an error with %s"}},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%s", err.Error())`, []string{"fmt.Errorf formats err.Error()"}},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%s", model.ErrCorrupt)`, []string{"fmt.Errorf formats an error with %s"}},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%+v", ctx.Err())`, []string{"fmt.Errorf formats an error with %v"}},
	{"errorf", "internal/wal/a.go", `package wal; import "fmt"; var _ = fmt.Errorf("%s %d %s", element, errorCount(), stderr)`, nil},

	{"file length", "internal/wal/a.go", "package wal\n" + strings.Repeat("\n", fileAim-2), nil},
	{"file length", "internal/wal/a.go", "package wal\n" + strings.Repeat("\n", fileAim), []string{"401 lines, aim 400"}},
	{"file length", "internal/wal/a_test.go", "package wal\n" + strings.Repeat("\n", fileMax-2), nil},
	{"file length", "internal/wal/a_test.go", "package wal\n" + strings.Repeat("\n", fileMax), []string{"801 lines, limit 800"}},

	{"function length", "internal/wal/a.go", long + strings.Repeat("\n", funcAim-2) + "}", nil},
	{"function length", "internal/wal/a.go", long + strings.Repeat("\n", funcAim-1) + "}", []string{"f has 71 lines, aim 70"}},
	{"function length", "internal/wal/a.go", long + strings.Repeat("\n", funcAim-1) + "}" + strings.Repeat("\nfunc g() {}", funcPastAimShare-1), nil},
	{"function length", "internal/wal/a.go", long + strings.Repeat("\n", funcMax-1) + "}" + strings.Repeat("\nfunc g() {}", 100), []string{"f has 101 lines, limit 100"}},

	{"documentation", "internal/wal/a.go", "// Package wal is one.\npackage wal\n// A is.\ntype A int\n// F does.\nfunc (A) F() {}\nfunc (A) String() string { return \"\" }\nfunc (b) G() {}\n// Both.\nconst (\nB = 1\nC = 2\n)\nvar D = 1 // a d", nil},
	{"documentation", "internal/wal/a.go", "package wal", []string{"package wal has no comment"}},
	{"documentation", "internal/wal/a.go", "// Package wal is one.\npackage wal\ntype A int\nfunc (*A) F() {}\nfunc G() {}\nconst B = 1\nvar D = 1", []string{"A is", "F is", "G is", "B is", "D is"}},

	{"package state", "internal/wal/a.go", `package wal; import ("errors"; "regexp"; "hash/crc32"); var a, b = errors.New("a"), regexp.MustCompile("b"); var c = crc32.MakeTable(1); var d = []int{1}; var e = map[string]int{}; var f = [...]int{1}; var g = []byte("g"); var _ I = t{}`, nil},
	{"package state", "internal/wal/a.go", `package wal; var a int; var b = new(int); var c = T{}; var d = sync.Mutex{}`, []string{"package variable a", "package variable b", "package variable c", "package variable d"}},
	{"package state", "internal/wal/a.go", `package wal; var a = map[int]int{}; var b, c, d, e = []int{}, []int{}, []int{}, map[int]int{}; func f() { a[1] = 2; b = append(b, 1); c[0]++; g(&d); delete(e, 1) }`,
		[]string{"package variable a", "package variable b", "package variable c", "package variable d", "package variable e"}},
	{"package state", "cmd/narad/a.go", `package main; var version string`, nil},
	{"package state", "internal/wal/a_test.go", `package wal; var update bool`, nil},
}

// Every rule finds what it is for, and only that.
func TestRulesOnExamples(t *testing.T) {
	covered := map[string]bool{}
	for _, ex := range examples {
		f, err := parse(ex.path, ex.src)
		if err != nil {
			t.Fatalf("%s: %v", ex.src, err)
		}
		found := broken(rules[ex.rule], []*source{f})
		ok := len(found) == len(ex.want)
		for i := 0; ok && i < len(found); i++ {
			ok = strings.HasPrefix(found[i].text, ex.want[i]) && found[i].file == ex.path && found[i].line > 0
		}
		if !ok {
			t.Errorf("%s, %s: %.200s\nfound %q\nwant  %q", ex.rule, ex.path, ex.src, found, ex.want)
		}
		covered[ex.rule] = covered[ex.rule] || len(found) > 0
	}
	for name := range rules {
		if !covered[name] {
			t.Errorf("no example breaks rule %q", name)
		}
	}
}

func TestDependenciesAreCounted(t *testing.T) {
	block := "module x\n\nrequire y v1\nrequire (\n" + strings.Repeat("\ta v1\n", directDepsMax-1) + "\tb v2 // indirect\n)\n"
	if found := checkModule(block); found != nil {
		t.Errorf("at the limit: %q", found)
	}
	if found := checkModule(block + "require z v1\n"); len(found) != 1 {
		t.Errorf("past the limit: %q", found)
	}
}

// An exception nothing needs is itself a finding.
func TestUnusedExceptionsAreFound(t *testing.T) {
	list := map[string]string{"a.go": "needed", "b.go": "was needed once"}
	found := unused(map[string]bool{"a.go": true}, "longFiles", list)
	if len(found) != 1 || !strings.Contains(found[0].text, "b.go") {
		t.Errorf("found %q", found)
	}
}
