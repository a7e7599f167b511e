package schema

import (
	"errors"
	"regexp/syntax"
	"strings"
	"testing"
)

// SR-5: what a pattern costs, by hand for small ones.
func TestSR5StepsPerByte(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		low, top int // what the bound may be
	}{
		{`^a$`, 1, 4},
		{`^abcdefghijklmnopqrstuvwxyz$`, 1, 4},
		{`^[a-z]{1,1000}$`, 2, 6},
		{`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`, 1, 4},
		{`^[^@ ]+@[^@ ]+\.[a-z]{2,}$`, 3, 12},
		{`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`, 3, 16},
		{`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$`, 3, 16},
		{`foo`, 2, 8},
		{`.*a.{5}`, 7, 16},
		{`.*a.{40}`, 33, 100},
		{`[a-z]{1,64}@`, 33, 200},
		{`(?i)straße`, 2, 12},
		{`^((((((((((a?)?)?)?)?)?)?)?)?)?)*$`, 10, 100},
	} {
		parsed, err := syntax.Parse(c.pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		n, left := stepsPerByte(prog, patternWork)
		if n < c.low || n > c.top || left <= 0 {
			t.Errorf("%s: %d steps, want %d to %d; %d work left", c.pattern, n, c.low, c.top, left)
		}
	}
}

// The bound holds for what the matcher of a set simulation really visits.
func TestSR5BoundCoversASimulation(t *testing.T) {
	patterns := []string{`a*a*b`, `^(a|b)*abb$`, `x{2,9}y?`, `(?i)k[a-z]+$`, `\bfoo\b|^bar`, `^a?a?a?aaa$`, `[^b]*b[^c]{3}`, `(a|ab|abc)+c`}
	texts := []string{"", "aaaaaaaab", "abababbabb", "xxxxxxxxxxy", "KkkkKa", "foo bar foo", "aaaa", "abcabcababc", "ſK"}
	for _, p := range patterns {
		parsed, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		bound, _ := stepsPerByte(prog, patternWork)
		for _, text := range texts {
			if got := simulate(prog, text); got > bound {
				t.Errorf("%s on %q visits %d instructions at one byte, bound %d", p, text, got, bound)
			}
		}
	}
}

// simulate runs a program over a text, without ever stopping at a match, and returns
// the most instructions visited at one position.
func simulate(prog *syntax.Prog, text string) (most int) {
	runes := append([]rune{-1}, []rune(text)...)
	current := map[uint32]bool{}
	for i := range runes {
		next := -1
		if i+1 < len(runes) {
			next = int(runes[i+1])
		}
		here := syntax.EmptyOpContext(runes[i], rune(next))
		visited := map[uint32]bool{}
		var add func(pc uint32)
		add = func(pc uint32) {
			if visited[pc] {
				return
			}
			visited[pc] = true
			in := &prog.Inst[pc]
			switch in.Op {
			case syntax.InstAlt, syntax.InstAltMatch:
				add(in.Out)
				add(in.Arg)
			case syntax.InstCapture, syntax.InstNop:
				add(in.Out)
			case syntax.InstEmptyWidth:
				if syntax.EmptyOp(in.Arg)&^here == 0 {
					add(in.Out)
				}
			}
		}
		if i == 0 || prog.StartCond()&syntax.EmptyBeginText == 0 {
			add(uint32(prog.Start))
		}
		for pc := range current {
			add(pc)
		}
		most = max(most, len(visited))
		current = map[uint32]bool{}
		for pc := range visited {
			if in := &prog.Inst[pc]; next >= 0 && consumes(in) && in.MatchRune(rune(next)) {
				current[in.Out] = true
			}
		}
	}
	return most
}

func TestSR5Refusals(t *testing.T) {
	for _, p := range []string{`(?=a)`, `(?!a)`, `(?<=a)b`, `(a)\1`, `a**`, `[`, `a{1001}`, `\p{Nope}`, `(?P<n>a)(?P=n)`} {
		b := newPatternBudget()
		if _, err := b.compile(p); err == nil || !strings.HasPrefix(err.Error(), "not an RE2 expression") {
			t.Errorf("%s: %v", p, err)
		}
	}
	b := newPatternBudget()
	for i := range 300 {
		if _, err := b.compile("^a{" + strings.Repeat("9", 3) + "}$" + strings.Repeat("b", i)); err != nil {
			if b.size >= 0 {
				t.Errorf("pattern %d: %v with %d left", i, err, b.size)
			}
			return
		}
	}
	t.Error("no bound on the patterns of a document")
}

// The same pattern is compiled once.
func TestPatternsAreShared(t *testing.T) {
	b := newPatternBudget()
	x, err1 := b.compile("^a")
	y, err2 := b.compile("^a")
	if err := errors.Join(err1, err2); err != nil || x != y {
		t.Errorf("%p %p %v", x, y, err)
	}
}
