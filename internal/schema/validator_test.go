package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

// large is a payload past the free size, for the schema true.
var large = []byte(`"` + strings.Repeat("x", freePayloadMax-1) + `"`)

// rig is a validator whose slots the test holds.
type rig struct {
	*Validator
	clk *clock.Fake
	reg *prometheus.Registry
}

func newRig(procs int) *rig {
	r := &rig{clk: clock.NewFake(time.Unix(1_700_000_000, 0)), reg: prometheus.NewRegistry()}
	r.Validator = NewValidator(procs, r.clk, r.reg)
	return r
}

// hold takes n slots away.
func (r *rig) hold(n int) {
	for range n {
		r.slots <- struct{}{}
	}
}

func (r *rig) rejections(reason string) float64 { return promtest.ToFloat64(r.refused[reason]) }

func TestSV9CostlySchemas(t *testing.T) {
	names := func(n int) string { return repeat(n, ",", func(i int) string { return fmt.Sprintf(`"n%d"`, i) }) }
	branches := func(n int) string {
		return repeat(n, ",", func(i int) string { return fmt.Sprintf(`{"const":%d}`, i) })
	}
	patterns := func(n int) string {
		return repeat(n, ",", func(i int) string { return fmt.Sprintf(`"^p%d$":{"type":"null"}`, i) })
	}
	for doc, costly := range map[string]bool{
		`{"required":[` + names(1024) + `]}`:                                                                               false,
		`{"required":[` + names(1025) + `]}`:                                                                               true,
		`{"required":[` + names(1000) + `],"dependentRequired":{"a":[` + names(25) + `]}}`:                                 true,
		`{` + draft7Head + `"dependencies":{"a":[` + names(1025) + `]}}`:                                                   true,
		`{"patternProperties":{` + patterns(65) + `}}`:                                                                     true,
		`{"patternProperties":{` + patterns(64) + `}}`:                                                                     false,
		`{"items":{"anyOf":[` + branches(63) + `]}}`:                                                                       false,
		`{"items":{"anyOf":[` + branches(64) + `]}}`:                                                                       true,
		`{"oneOf":[` + branches(64) + `]}`:                                                                                 true,
		`{"properties":{` + repeat(500, ",", func(i int) string { return fmt.Sprintf(`"p%d":{"type":"null"}`, i) }) + `}}`: false,
	} {
		if got := mustRegister(t, doc).Costly(); got != costly {
			t.Errorf("%s: costly %v", short(doc), got)
		}
	}
}

// SV-9: small payloads pass by the bound; large ones, and any on a costly schema, wait
// for a slot and get 503 after 5 s.
func TestSV9SlotRule(t *testing.T) {
	plain := mustRegister(t, `true`)
	costly := mustRegister(t, `{"anyOf":[`+repeat(64, ",", func(int) string { return "{}" })+`]}`)
	r := newRig(2)
	r.hold(2)
	if err := r.Check(t.Context(), plain, large[:freePayloadMax]); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("%d bytes need a slot: %v", freePayloadMax, err)
	}
	if err := r.Check(t.Context(), nil, large); err != nil {
		t.Errorf("SV-11, no schema: %v", err)
	}
	for name, check := range map[string]func() error{
		"large":           func() error { return r.Check(t.Context(), plain, large) },
		"small on costly": func() error { return r.Check(t.Context(), costly, []byte(`1`)) },
	} {
		done := make(chan error)
		go func() { done <- check() }()
		testutil.Eventually(t, 5*time.Second, func() bool { return r.clk.Timers() == 1 }, name+": the wait")
		r.clk.Advance(slotWait - 1)
		select {
		case err := <-done:
			t.Fatalf("%s: answered early: %v", name, err)
		default:
		}
		r.clk.Advance(1)
		if err := <-done; !errors.Is(err, model.ErrSchemaBusy) || err.Error() != "schema: validation capacity busy, retry" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := r.rejections(reasonBusy); n != 2 {
		t.Errorf("busy counted %v times", n)
	}
}

func TestSV9SlotComesFree(t *testing.T) {
	r := newRig(1)
	r.hold(1)
	done := make(chan error)
	go func() { done <- r.Check(t.Context(), mustRegister(t, `true`), large) }()
	testutil.Eventually(t, 5*time.Second, func() bool { return r.clk.Timers() == 1 }, "the wait")
	<-r.slots
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(r.slots) != 0 || r.clk.Timers() != 0 {
		t.Errorf("%d slots and %d timers left", len(r.slots), r.clk.Timers())
	}
}

func TestSV9CallerLeaves(t *testing.T) {
	r := newRig(1)
	r.hold(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Check(ctx, mustRegister(t, `true`), large) }()
	testutil.Eventually(t, 5*time.Second, func() bool { return r.clk.Timers() == 1 }, "the wait")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if r.rejections(reasonCanceled) != 1 || r.rejections(reasonBusy) != 0 {
		t.Error("not counted as canceled")
	}
}

func TestMetricsCountRefusalsByReason(t *testing.T) {
	r := newRig(0) // counts as one
	integer := mustRegister(t, `{"type":"integer"}`)
	badPattern, err := Compile("t", 1, []byte(`{"pattern":"(?=a)"}`))
	if err != nil {
		t.Fatal(err)
	}
	badPaths, err := Compile("t", 1, []byte(manyPaths(65)))
	if err != nil {
		t.Fatal(err)
	}
	for reason, c := range map[string]struct {
		s       *Schema
		payload string
	}{
		reasonDepth:     {integer, strings.Repeat("[", 257)},
		reasonMalformed: {integer, "x"},
		reasonInvalid:   {integer, "1.5"},
		reasonPattern:   {badPattern, "1"},
		reasonPaths:     {badPaths, string(large)},
	} {
		if err := r.Check(t.Context(), c.s, []byte(c.payload)); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", reason, err)
		}
		if n := r.rejections(reason); n != 1 {
			t.Errorf("%s counted %v times", reason, n)
		}
	}
	if err := r.Check(t.Context(), integer, large); err == nil {
		t.Error("a string is no integer")
	}
	if n := r.rejections(reasonInvalid); n != 2 {
		t.Errorf("invalid counted %v times", n)
	}
	want := `
# HELP narad_schema_validations_in_flight Payload checks running under the node's bound.
# TYPE narad_schema_validations_in_flight gauge
narad_schema_validations_in_flight 0
`
	if err := promtest.GatherAndCompare(r.reg, strings.NewReader(want), "narad_schema_validations_in_flight"); err != nil {
		t.Error(err)
	}
	if n := promtest.CollectAndCount(r.seconds); n != 1 {
		t.Errorf("%d histograms", n)
	}
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "narad_schema_validation_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%d observations, only the large payload is one", f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
}
