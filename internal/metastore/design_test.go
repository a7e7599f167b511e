package metastore

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The tables of DESIGN.md name tests that exist, here or in the controller.
func TestDesignNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("DESIGN.md")
	must(t, err)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	duties, err := filepath.Glob("../controller/*_test.go")
	must(t, err)
	defined := map[string]bool{}
	for _, name := range append(files, duties...) {
		src, err := os.ReadFile(name)
		must(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`).FindAllSubmatch(src, -1) {
			defined[string(m[1])] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Benchmark)\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 50 {
		t.Fatalf("%d tests named", len(named))
	}
	for _, m := range named {
		if !defined[string(m[1])] {
			t.Errorf("DESIGN.md names %s, which does not exist", m[1])
		}
	}
}
