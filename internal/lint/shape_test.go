package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// Budgets, in lines.
const (
	fileAim, fileMax = 400, 800
	funcAim, funcMax = 70, 100
	funcPastAimShare = 50 // one function in so many may pass the aim: 2 %
)

// checkFileLength: a product file above the aim is a listed exception, and no file
// passes the limit.
func checkFileLength(files []*source) []finding {
	var out []finding
	used := map[string]bool{}
	for _, f := range files {
		switch n := f.lines(); {
		case n > fileMax:
			out = append(out, f.at(f.ast.Package, "%d lines, limit %d: find the seam and split the file", n, fileMax))
		case n <= fileAim || f.test():
		case longFiles[f.path] != "":
			used[f.path] = true
		default:
			out = append(out, f.at(f.ast.Package, "%d lines, aim %d: split the file, or give the reason in longFiles (internal/lint/exceptions_test.go)", n, fileAim))
		}
	}
	return append(out, unused(used, "longFiles", longFiles)...)
}

// checkFuncLength: none passes the limit, and few the aim.
func checkFuncLength(files []*source) []finding {
	var out, long []finding
	total := 0
	for _, f := range files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			total++
			n := f.line(fn.End()) - f.line(fn.Pos()) + 1
			switch {
			case n > funcMax:
				out = append(out, f.at(fn.Pos(), "%s has %d lines, limit %d: keep the branches here and move the work to named functions", fn.Name.Name, n, funcMax))
			case n > funcAim:
				long = append(long, f.at(fn.Pos(), "%s has %d lines, aim %d, and too many functions pass it: split this one or another of the list", fn.Name.Name, n, funcAim))
			}
		}
	}
	if len(long)*funcPastAimShare > total {
		out = append(out, long...)
	}
	return out
}

// checkDocs: every package says what it owns, every exported name what it means.
func checkDocs(files []*source) []finding {
	var out []finding
	first := map[string]*source{}
	documented := map[string]bool{}
	for _, f := range files {
		if f.test() {
			continue
		}
		if first[f.dir()] == nil {
			first[f.dir()] = f
		}
		if f.ast.Doc != nil {
			documented[f.dir()] = true
		}
		for _, d := range f.ast.Decls {
			out = append(out, undocumented(f, d)...)
		}
	}
	for dir, f := range first {
		if !documented[dir] {
			out = append(out, f.at(f.ast.Package, "package %s has no comment: say in one what it owns", f.ast.Name.Name))
		}
	}
	return out
}

func undocumented(f *source, d ast.Decl) []finding {
	var out []finding
	missing := func(id *ast.Ident, docs ...*ast.CommentGroup) {
		if id.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d.Text() != "" }) {
			out = append(out, f.at(id.Pos(), "%s is exported and has no comment: say what it means, with units and errors, or unexport it", id.Name))
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || ast.IsExported(receiver(d)) && !standard(d.Name.Name) {
			missing(d.Name, d.Doc)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				missing(spec.Name, d.Doc, spec.Doc)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					missing(name, d.Doc, spec.Doc, spec.Comment)
				}
			}
		}
	}
	return out
}

// standard methods mean the same on every type.
func standard(name string) bool {
	return slices.Contains([]string{"Error", "String", "Unwrap", "Len", "Less", "Swap"}, name)
}

func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// checkVars: no package-level state in internal packages.
func checkVars(files []*source) []finding {
	var out []finding
	used := map[string]bool{}
	written := map[string]bool{} // directory.name, by product code
	for _, f := range files {
		if !f.test() {
			for name := range f.written() {
				written[f.dir()+"."+name] = true
			}
		}
	}
	for _, f := range files {
		if f.test() || !f.under("internal") {
			continue
		}
		for _, d := range f.ast.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				vs := spec.(*ast.ValueSpec)
				for i, name := range vs.Names {
					key := f.dir() + "." + name.Name
					switch {
					case name.Name == "_" || i < len(vs.Values) && f.constant(vs.Values[i]) && !written[key]:
					case packageVars[key] != "":
						used[key] = true
					default:
						out = append(out, f.at(name.Pos(), "package variable %s: make it a field of the type that uses it, or a constant", name.Name))
					}
				}
			}
		}
	}
	return append(out, unused(used, "packageVars", packageVars)...)
}

// constant reports whether a package variable of this value is only a constant the
// language has no word for: an error, a pattern, a checksum table, a table, a key.
func (s *source) constant(v ast.Expr) bool {
	switch v := v.(type) {
	case *ast.CallExpr:
		if _, conversion := v.Fun.(*ast.ArrayType); conversion { // []byte("text")
			return true
		}
		return s.selects(v.Fun, "errors") == "New" || s.selects(v.Fun, "fmt") == "Errorf" ||
			s.selects(v.Fun, "regexp") == "MustCompile" || s.selects(v.Fun, "hash/crc32") == "MakeTable"
	case *ast.CompositeLit:
		switch v.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			return true
		}
	}
	return false
}

// written are the names the file assigns to, changes in place or takes the address
// of, outside their declaration.
func (s *source) written() map[string]bool {
	out := map[string]bool{}
	note := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			case *ast.Ident:
				out[x.Name] = true
				return
			default:
				return
			}
		}
	}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					note(e)
				}
			}
		case *ast.IncDecStmt:
			note(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				note(n.X)
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
				note(n.Args[0])
			}
		}
		return true
	})
	return out
}

// directDepsMax bounds the modules go.mod names itself.
const directDepsMax = 15

// checkModule counts direct dependencies.
func checkModule(gomod string) []finding {
	var direct []string
	block := false
	for _, line := range strings.Split(gomod, "\n") {
		line = strings.TrimSpace(line)
		one := strings.HasPrefix(line, "require ") && !strings.HasSuffix(line, "(")
		switch {
		case line == "require (":
			block = true
		case line == ")":
			block = false
		case (block || one) && line != "" && !strings.HasPrefix(line, "//") && !strings.Contains(line, "// indirect"):
			direct = append(direct, strings.Fields(strings.TrimPrefix(line, "require "))[0])
		}
	}
	if len(direct) <= directDepsMax {
		return nil
	}
	return []finding{{"go.mod", 1, fmt.Sprintf("%d direct dependencies, limit %d: do without one of %s", len(direct), directDepsMax, strings.Join(direct, ", "))}}
}

// unused complains about exceptions nothing needs; lists are name, map, name, map.
func unused(used map[string]bool, lists ...any) []finding {
	var out []finding
	for i := 0; i < len(lists); i += 2 {
		for _, key := range slices.Sorted(maps.Keys(lists[i+1].(map[string]string))) {
			if !used[key] {
				out = append(out, finding{path.Join("internal/lint", "exceptions_test.go"), 1, fmt.Sprintf("%s lists %s, which needs no exception: remove the entry", lists[i], key)})
			}
		}
	}
	return out
}
