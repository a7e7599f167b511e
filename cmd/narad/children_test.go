package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// The life of a link through every verb, against the real binary.
func TestLinkCommandsAgainstANode(t *testing.T) {
	node := testutil.NewNode(t, t.TempDir())
	node.Start()
	t.Setenv("NARAD_ADDR", node.URL)
	must(t, "", "topic", "create", "orders")
	out, _ := must(t, "", "topic", "create", "orders-due", "--parent", "orders", "--delay", "1h")
	want(t, "create with a parent", out, `(?s)\{.*"role": "child",.*"parent": "orders",.*"fanout_delay_ms": 3600000,.*\}\n`)
	must(t, "", "topic", "create", "audit")
	out, _ = must(t, "", "topic", "attach", "orders", "audit")
	want(t, "attach", out, `(?s)\{.*"name": "orders",.*"children": \[\s*"orders-due",\s*"audit"\s*\].*\}\n`)
	must(t, "", "produce", "orders", "1")
	must(t, "", "topic", "wait", "orders", "audit", "--lag-zero", "--timeout", "20s", "--interval", "50ms")
	out, _ = must(t, "", "consume", "audit", "--wait", "10s", "--raw")
	want(t, "the copy", out, `1\n`)
	out, _ = must(t, "", "topic", "children", "orders")
	want(t, "children", out, `NAME +DELAY +LAG\norders-due +1h0m0s +1\naudit +- +0\n`)
	out, _ = must(t, "", "topic", "children", "orders", "--json")
	want(t, "children --json", out, `(?s)\{.*"lag_complete": true.*\}\n`)
	code, _, errOut := cli(t, "", "topic", "wait", "orders", "orders-due", "--lag-zero", "--timeout", "50ms", "--interval", "10ms")
	if code != exitFailure || !strings.Contains(errOut, "the lag was not 0") {
		t.Errorf("wait for what will not come: %d, %s", code, errOut)
	}
	must(t, "", "topic", "detach", "orders", "audit")
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{exitFailure, "no such fan-out link", []string{"topic", "detach", "orders", "audit"}},
		{exitFailure, "already a child", []string{"topic", "attach", "audit", "orders-due"}},
		{exitFailure, "is no child of", []string{"topic", "wait", "orders", "audit", "--lag-zero"}},
		{exitUsage, "--lag-zero", []string{"topic", "wait", "orders", "audit"}},
		{exitUsage, "must be positive", []string{"topic", "wait", "orders", "audit", "--lag-zero", "--interval", "0s"}},
		{exitFailure, "needs parent", []string{"topic", "create", "x", "--delay", "1s"}},
	} {
		if code, _, errOut := cli(t, "", c.args...); code != c.code || !strings.Contains(errOut, c.text) {
			t.Errorf("%v: %d, %s", c.args, code, errOut)
		}
	}
}

// answers are what a server says to one question after the other; the last one stays.
type answers struct {
	list []any // client.ChildStatus or error
	n    int
}

func (a *answers) Children(context.Context, string) (client.Children, error) {
	at := a.list[min(a.n, len(a.list)-1)]
	a.n++
	if err, ok := at.(error); ok {
		return client.Children{}, err
	}
	return client.Children{Children: []client.ChildStatus{at.(client.ChildStatus)}}, nil
}

func TestWaitLagZero(t *testing.T) {
	zero := client.ChildStatus{Name: "c", LagComplete: true}
	lag := client.ChildStatus{Name: "c", LagComplete: true, LagMessages: 3}
	unknown := client.ChildStatus{Name: "c"}
	denied := errors.New("denied")
	for _, c := range []struct {
		name   string
		list   []any
		stable time.Duration
		least  int // questions
		fails  bool
	}{
		{"at once", []any{zero}, 0, 1, false},
		{"after a lag", []any{lag, lag, zero}, 0, 3, false},
		{"unknown is not zero", []any{unknown}, 0, 2, true},
		{"never", []any{lag}, 0, 2, true},
		{"stable", []any{zero}, 20 * time.Millisecond, 3, false},
		{"interrupted", []any{zero, lag, zero}, 15 * time.Millisecond, 4, false},
		{"refused", []any{denied}, 0, 1, true},
	} {
		a := &answers{list: c.list}
		err := waitFlags{stable: c.stable, timeout: 300 * time.Millisecond, interval: 5 * time.Millisecond}.wait(t.Context(), a, "p", "c")
		if (err != nil) != c.fails || a.n < c.least {
			t.Errorf("%s: %v after %d questions", c.name, err, a.n)
		}
	}
}
