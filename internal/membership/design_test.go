package membership

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of DESIGN.md names tests that exist, in the package it says.
func TestDesignNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("DESIGN.md")
	must(t, err)
	defined := map[string]map[string]bool{}
	in := func(pkg string) map[string]bool {
		if defined[pkg] != nil {
			return defined[pkg]
		}
		dir := filepath.Join("..", filepath.FromSlash(pkg))
		if strings.HasPrefix(pkg, "tests/") {
			dir = filepath.Join("..", "..", filepath.FromSlash(pkg))
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		must(t, err)
		names := map[string]bool{}
		for _, name := range files {
			src, err := os.ReadFile(name)
			must(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(src, -1) {
				names[string(m[1])] = true
			}
		}
		defined[pkg] = names
		return names
	}
	named := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for part := range strings.SplitSeq(cells[2], ";") {
			pkg := "membership"
			if m := regexp.MustCompile("^ ([a-z/]+) `").FindStringSubmatch(part); m != nil {
				pkg = m[1]
			}
			for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(part, -1) {
				if named++; !in(pkg)[m[1]] {
					t.Errorf("DESIGN.md names %s of %s, which does not exist", m[1], pkg)
				}
			}
		}
	}
	if named < 80 {
		t.Errorf("%d tests named", named)
	}
}
