package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// clockNames are the names of package time that read the clock or wait for it.
var clockNames = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// checkTime: time comes from internal/clock, and nobody sleeps.
func checkTime(files []*source) []finding {
	var out []finding
	used := map[string]bool{}
	for _, f := range files {
		free := f.test() || f.under("internal/clock", "internal/testutil", "cmd", "client", "bench", "tests")
		bubbles := f.bubbles()
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			switch name := f.selects(e, "time"); {
			case name == "Sleep" && sleeps[f.path] != "":
				used[f.path] = true
			case name == "Sleep" && !inside(bubbles, n.Pos()):
				out = append(out, f.at(n.Pos(), "time.Sleep: wait for the event itself (testutil.Eventually, the fake clock, a channel), or run inside synctest.Test"))
			case free || !slices.Contains(clockNames, name):
			case wallClocks[f.path] != "":
				used[f.path] = true
			default:
				out = append(out, f.at(n.Pos(), "time.%s: take a clock.Clock and use its Now or NewTimer", name))
			}
			return true
		})
	}
	return append(out, unused(used, "sleeps", sleeps, "wallClocks", wallClocks)...)
}

// bubbles are the parts of the file that run on fake time: what is handed to
// synctest.Test, and functions that call synctest.Wait, which fails elsewhere.
func (s *source) bubbles() []ast.Node {
	out := s.callsOf("testing/synctest", "Test")
	for _, wait := range s.callsOf("testing/synctest", "Wait") {
		var innermost ast.Node
		ast.Inspect(s.ast, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				if inside([]ast.Node{n}, wait.Pos()) {
					innermost = n
				}
			}
			return true
		})
		if innermost != nil {
			out = append(out, innermost)
		}
	}
	return out
}

// callsOf returns all calls of pkg.name in the file.
func (s *source) callsOf(pkg, name string) []ast.Node {
	var out []ast.Node
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && s.selects(call.Fun, pkg) == name {
			out = append(out, call)
		}
		return true
	})
	return out
}

func inside(nodes []ast.Node, p token.Pos) bool {
	return slices.ContainsFunc(nodes, func(n ast.Node) bool { return n.Pos() <= p && p < n.End() })
}

// osFileNames are the names of package os that touch the file system.
var osFileNames = []string{
	"Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "DirFS", "Lchown", "Link", "Lstat", "Mkdir", "MkdirAll",
	"MkdirTemp", "NewFile", "Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile", "Readlink", "Remove",
	"RemoveAll", "Rename", "Stat", "Symlink", "Truncate", "WriteFile",
}

// filePackages may call package os for files: the seam, the metastore (raft and
// bbolt open their own), and what runs beside a node.
var filePackages = []string{"internal/disk", "internal/metastore", "internal/testutil", "cmd", "bench", "tests", "client"}

// checkFiles: files come from internal/disk, and trees go only through reclaim.
func checkFiles(files []*source) []finding {
	var out []finding
	used := map[string]bool{}
	for _, f := range files {
		if f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			name := f.selects(e, "os")
			switch {
			case name == "RemoveAll" && f.under("internal/reclaim", "internal/testutil", "tests"):
			case name == "RemoveAll" && removers[f.path] != "":
				used[f.path] = true
			case name == "RemoveAll":
				out = append(out, f.at(n.Pos(), "os.RemoveAll: rename the directory aside with disk.FS.Rename and leave its removal to internal/reclaim, which asks first"))
			case !slices.Contains(osFileNames, name) || f.under(filePackages...):
			case fileUsers[f.path] != "":
				used[f.path] = true
			default:
				out = append(out, f.at(n.Pos(), "os.%s: take a disk.FS and use it, so that tests can crash it", name))
			}
			return true
		})
	}
	return append(out, unused(used, "fileUsers", fileUsers, "removers", removers)...)
}

// errorName matches how this module names error values, and sentinels.
var errorName = regexp.MustCompile(`^([a-z]?err|[a-z]\w*Err|err[0-9A-Z]\w*|Err[A-Z]\w*)$`)

// verb matches one formatting directive; its last group is the letter.
var verb = regexp.MustCompile(`%[-+# 0]*(\*|\d+)?(\.(\*|\d+)?)?([a-zA-Z%])`)

// checkErrorf: an error passed on keeps its chain.
func checkErrorf(files []*source) []finding {
	var out []finding
	for _, f := range files {
		for _, n := range f.callsOf("fmt", "Errorf") {
			call := n.(*ast.CallExpr)
			if len(call.Args) < 2 {
				continue
			}
			verbs := verbsOf(call.Args[0])
			for i, arg := range call.Args[1:] {
				if isErrorText(arg) {
					out = append(out, f.at(arg.Pos(), "fmt.Errorf formats err.Error(): pass the error itself with %%w"))
				}
				if isError(arg) && i < len(verbs) && verbs[i] != "w" {
					out = append(out, f.at(arg.Pos(), "fmt.Errorf formats an error with %%%s: use %%w, so that errors.Is sees it", verbs[i]))
				}
			}
		}
	}
	return out
}

// verbsOf is the directive letter per argument; nil when the format is not made of
// literals or numbers its arguments.
func verbsOf(format ast.Expr) []string {
	text, ok := literal(format)
	if !ok || strings.Contains(text, "%[") {
		return nil
	}
	var out []string
	for _, m := range verb.FindAllStringSubmatch(text, -1) {
		if m[4] == "%" {
			continue
		}
		for range strings.Count(m[1]+m[3], "*") {
			out = append(out, "*")
		}
		out = append(out, m[4])
	}
	return out
}

func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, ok1 := literal(e.X)
		b, ok2 := literal(e.Y)
		return a + b, ok1 && ok2 && e.Op == token.ADD
	}
	return "", false
}

func isError(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return errorName.MatchString(e.Name)
	case *ast.SelectorExpr:
		return errorName.MatchString(e.Sel.Name)
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		return ok && len(e.Args) == 0 && sel.Sel.Name == "Err"
	}
	return false
}

func isErrorText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 0 {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Error"
}
