package conformance

import (
	"net"
	"net/url"
	"strings"
	"syscall"
)

// healthChecks are H (section 15).
var healthChecks = map[string]check{
	"H-1": func(p *probe) { p.ask(p.server(), "GET /healthz", "").is(200, "").equals(`{"status":"ok"}`) },
	"H-2": stopping,
	"H-3": func(p *probe) { p.ask(p.server(), "GET /readyz", "").is(200, "").equals(`{"status":"ready"}`) },
	"H-13": func(p *probe) {
		api, ops := p.twoPorts()
		p.run(api, row{"GET /metrics", "", 404, "404 page not found", nil}, row{"GET /healthz", "", 200, "", nil})
		p.run(ops, row{"GET /healthz", "", 200, "", nil}, row{"GET /readyz", "", 200, "", nil}, row{"GET /v1/topics", "", 404, "404 page not found", nil})
		if a := p.ask(ops, "GET /metrics", ""); a.status != 200 || !strings.Contains(a.body, "narad_build_info") {
			a.fatalf("want the metrics")
		}
	},
}

// equals wants exactly one line.
func (a *answer) equals(line string) *answer {
	a.p.Helper()
	if a.body != line+"\n" {
		a.fatalf("want %q", line)
	}
	return a
}

// twoPorts is a node of this check's own with a separate metrics listener, and that
// listener.
func (p *probe) twoPorts() (api, ops *server) {
	p.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // free again, in all likelihood, when the node binds it
	n := p.own("NARAD_HTTP_METRICS_ADDR=" + addr)
	n.Start()
	return reach(n), &server{base: &url.URL{Scheme: "http", Host: addr}, node: n, ops: true}
}

// stopping: a node told to stop says so for as long as it drains. A request under way
// holds it in its drain; the API's port takes no connection any more.
func stopping(p *probe) {
	s, ops := p.twoPorts()
	line := "POST /v1/topics/" + p.newTopic(s) + "/produce"
	slow := p.dial(s)
	slow.write(line, "x", "Content-Length: 2", "X-Narad-Client: conformance")
	p.parked()
	p.ask(s, "GET /healthz", "").is(200, "")
	p.ask(ops, "GET /healthz", "").is(200, "")
	if err := s.node.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	p.eventually(func() bool { return p.ask(ops, "GET /healthz", "").status != 200 }, "/healthz to turn")
	p.ask(ops, "GET /healthz", "").is(503, "")
	p.ask(ops, "GET /readyz", "").is(503, "")
	if _, err := slow.Write([]byte("y")); err != nil {
		p.Fatal(err)
	}
	slow.read(line).is(202, "")
	if code := s.node.Wait(answerTimeout); code != 0 {
		p.Fatalf("the node ended with %d", code)
	}
}
