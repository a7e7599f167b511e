package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// source is one parsed Go file of the module.
type source struct {
	path string // from the module root, with slashes
	ast  *ast.File
	set  *token.FileSet
}

// finding is a broken rule: where, and what to do.
type finding struct {
	file string
	line int
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s *source) under(dirs ...string) bool {
	for _, d := range dirs {
		if s.dir() == d || strings.HasPrefix(s.dir(), d+"/") {
			return true
		}
	}
	return false
}

func (s *source) line(p token.Pos) int { return s.set.Position(p).Line }

func (s *source) lines() int { return s.set.File(s.ast.Package).LineCount() }

func (s *source) at(p token.Pos, format string, args ...any) finding {
	return finding{s.path, s.line(p), fmt.Sprintf(format, args...)}
}

// imported is the name under which the file knows a package, "" if it does not.
func (s *source) imported(pkg string) string {
	for _, spec := range s.ast.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err != nil || p != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// selects reports which name of pkg an expression is, "" if it is none.
func (s *source) selects(e ast.Expr, pkg string) string {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Name != s.imported(pkg) || id.Name == "" {
		return ""
	}
	return sel.Sel.Name
}

func parse(name string, src any) (*source, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{path: name, ast: f, set: set}, nil
}

const moduleRoot = "../.."

// load parses every Go file of the module.
func load(t *testing.T) []*source {
	t.Helper()
	var out []*source
	err := filepath.WalkDir(moduleRoot, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != moduleRoot && (strings.HasPrefix(base, ".") || base == "testdata" || base == "vendor") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(moduleRoot, name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(rel), b)
		out = append(out, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("found no Go files")
	}
	return out
}
