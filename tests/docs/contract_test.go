package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every promise of docs/delivery.md names tests that exist, in the package it says.
func TestContractNamesItsTests(t *testing.T) {
	doc, err := os.ReadFile("../../docs/delivery.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \d+ \| .* \| (.*) \|$`).FindAllStringSubmatch(string(doc), -1)
	if len(rows) < 10 {
		t.Fatalf("%d promises found: the table or this test has changed its form", len(rows))
	}
	for _, row := range rows {
		dir := ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			if !strings.HasPrefix(m[1], "Test") {
				dir = m[1]
				continue
			}
			if !hasTest(t, dir, m[1]) {
				t.Errorf("docs/delivery.md names %s in %s, which does not exist", m[1], dir)
			}
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
