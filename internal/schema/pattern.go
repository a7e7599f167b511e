package schema

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

// errPattern marks a document with a pattern that is no RE2 or costs too much (SR-5).
var errPattern = errors.New("pattern refused")

var errPatternSize = fmt.Errorf("repetitions written out, the patterns of the document exceed %d instructions", patternSizeMax)

// classSize is about what a class such as \pL counts. Parsing many of them is slow,
// so they are counted before.
const classSize = 512

// patternBudget compiles the patterns of one document within bounds.
type patternBudget struct {
	work, size int
	done       map[string]*regexp.Regexp
}

func newPatternBudget() patternBudget {
	return patternBudget{work: patternsWork, size: patternSizeMax, done: map[string]*regexp.Regexp{}}
}

// compile checks a pattern and compiles it.
func (b *patternBudget) compile(src string) (*regexp.Regexp, error) {
	if re, ok := b.done[src]; ok {
		return re, nil
	}
	if classes := strings.Count(src, `\p`) + strings.Count(src, `\P`); classes > b.size/classSize {
		return nil, errPatternSize
	}
	parsed, err := syntax.Parse(src, syntax.Perl)
	if err != nil {
		var at *syntax.Error
		if errors.As(err, &at) {
			return nil, fmt.Errorf("not an RE2 expression: %s", at.Code)
		}
		return nil, errors.New("not an RE2 expression")
	}
	if b.size -= size(parsed, b.size); b.size < 0 {
		return nil, errPatternSize
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("not an RE2 expression: %w", err)
	}
	work := min(b.work, patternWork)
	steps, left := stepsPerByte(prog, work)
	b.work -= work - left
	if steps > patternStepMax {
		return nil, fmt.Errorf("may take more than %d matcher steps per input byte", patternStepMax)
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return nil, fmt.Errorf("not an RE2 expression: %w", err)
	}
	b.done[src] = re
	return re, nil
}

// size estimates how many instructions an expression compiles to; it stops counting
// past most.
func size(re *syntax.Regexp, most int) int {
	n := 1 + len(re.Rune)/2
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n > most {
			return n
		}
		n += size(sub, most)
	}
	if re.Op == syntax.OpRepeat {
		n = (n + 1) * max(re.Max, re.Min, 1)
	}
	return min(n+1, most+1)
}

// steps finds how many instructions of a program a matcher may visit at one byte.
//
// Two instructions are together when some input leads to both at one position. A
// set of instructions visited at one byte is pairwise together, so if it has k
// members, k instructions are together with k (themselves counted). The largest
// such k bounds the steps per byte; patterns that pass are linear with that factor.
type steps struct {
	prog     *syntax.Prog
	anchored bool // a match starts at the start of the text only
	work     int
	together map[[2]uint32]bool
	queue    [][2]uint32 // pairs of rune instructions not yet followed
	closures map[uint32][]uint32
}

// stepsPerByte returns the bound, past patternStepMax when work does not suffice to
// find one, and the work left.
func stepsPerByte(prog *syntax.Prog, work int) (n, left int) {
	s := &steps{
		prog:     prog,
		anchored: prog.StartCond()&syntax.EmptyBeginText != 0,
		work:     work,
		together: map[[2]uint32]bool{},
		closures: map[uint32][]uint32{},
	}
	first := s.reach(uint32(prog.Start), true)
	s.join(first, first)
	again := s.again()
	s.join(again, again)
	for len(s.queue) > 0 && s.work > 0 {
		p := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		s.follow(p[0], p[1], again)
	}
	if s.work <= 0 {
		return patternStepMax + 1, 0
	}
	return s.bound(), s.work
}

// again is what a match that starts behind the start of the text visits first.
func (s *steps) again() []uint32 {
	if s.anchored {
		return nil
	}
	return s.closure(uint32(s.prog.Start))
}

// follow advances a pair over a rune that both take. Every instruction is paired with
// itself too.
func (s *steps) follow(a, b uint32, again []uint32) {
	ia, ib := &s.prog.Inst[a], &s.prog.Inst[b]
	if a != b && !s.overlap(ia, ib) {
		return
	}
	s.join(s.closure(ia.Out), s.closure(ib.Out))
	if a == b {
		s.join(s.closure(ia.Out), again)
	}
}

// join notes that the instructions of two sets are together.
func (s *steps) join(as, bs []uint32) {
	for _, a := range as {
		for _, b := range bs {
			if s.work--; s.work <= 0 {
				return
			}
			p := [2]uint32{min(a, b), max(a, b)}
			if s.together[p] {
				continue
			}
			s.together[p] = true
			if consumes(&s.prog.Inst[a]) && consumes(&s.prog.Inst[b]) {
				s.queue = append(s.queue, p)
			}
		}
	}
}

func consumes(in *syntax.Inst) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// closure is what is visited from pc on without a rune, behind the start of the text.
func (s *steps) closure(pc uint32) []uint32 {
	c, ok := s.closures[pc]
	if !ok {
		c = s.reach(pc, false)
		s.closures[pc] = c
	}
	return c
}

// reach walks from pc without a rune. An assertion may hold anywhere, but for the
// start of the text, which holds at the start only.
func (s *steps) reach(pc uint32, start bool) (out []uint32) {
	seen := map[uint32]bool{}
	stack := []uint32{pc}
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		s.work--
		out = append(out, pc)
		in := &s.prog.Inst[pc]
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			if start || syntax.EmptyOp(in.Arg)&syntax.EmptyBeginText == 0 {
				stack = append(stack, in.Out)
			}
		}
	}
	return out
}

// bound is the largest k such that k instructions are together with k.
func (s *steps) bound() int {
	degree := make([]int, len(s.prog.Inst))
	for p := range s.together {
		degree[p[0]]++
		if p[0] != p[1] {
			degree[p[1]]++
		}
	}
	slices.SortFunc(degree, func(a, b int) int { return b - a })
	k := 0
	for k < len(degree) && degree[k] > k {
		k++
	}
	return k
}

// overlap reports whether some rune is taken by both.
func (s *steps) overlap(a, b *syntax.Inst) bool {
	ra, rb := ranges(a), ranges(b)
	s.work -= len(ra) + len(rb)
	for len(ra) > 0 && len(rb) > 0 {
		switch {
		case ra[1] < rb[0]:
			ra = ra[2:]
		case rb[1] < ra[0]:
			rb = rb[2:]
		default:
			return true
		}
	}
	return false
}

// ranges are the runes an instruction takes, as ordered pairs.
func ranges(in *syntax.Inst) []rune {
	switch {
	case in.Op == syntax.InstRuneAny || in.Op == syntax.InstRuneAnyNotNL:
		return []rune{0, unicode.MaxRune}
	case len(in.Rune) != 1:
		return in.Rune
	case syntax.Flags(in.Arg)&syntax.FoldCase == 0:
		return []rune{in.Rune[0], in.Rune[0]}
	}
	orbit := []rune{in.Rune[0]}
	for r := unicode.SimpleFold(in.Rune[0]); r != in.Rune[0]; r = unicode.SimpleFold(r) {
		orbit = append(orbit, r)
	}
	slices.Sort(orbit)
	var out []rune
	for _, r := range orbit {
		out = append(out, r, r)
	}
	return out
}
