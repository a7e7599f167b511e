package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Times of the processes of a playground cluster.
const (
	readyWait  = time.Minute            // from the first start until the last node is ready
	readyPoll  = 100 * time.Millisecond // between two looks
	readyProbe = 2 * time.Second        // for one look
	stopWait   = 30 * time.Second       // for graceful stops; then they are killed
	outputWait = 2 * time.Second        // for what a process printed last
	oneSignal  = time.Second            // in which several signals count as one: some tools send two
)

// supervisor runs the nodes of a playground cluster and passes their logs on. Its
// methods are called from one goroutine.
type supervisor struct {
	out       *syncWriter
	processes []*process
	exits     chan exit // one for each process
	running   int
	http      http.Client
	// quiet stops passing logs on once the nodes stop: each of them then complains of the
	// others' absence. One that fails to stop is still told of by its exit code.
	quiet bool
}

type process struct {
	node  devNode
	cmd   *exec.Cmd
	ended bool
}

// exit is the end of a process.
type exit struct {
	p   *process
	err error // nil = exit code 0
}

func newSupervisor(out io.Writer, quiet bool) *supervisor {
	runtime.LockOSThread() // a child ends with the thread that started it: see apart
	return &supervisor{out: &syncWriter{w: out}, exits: make(chan exit, devNodesMax), http: http.Client{Timeout: readyProbe}, quiet: quiet}
}

// start runs "narad serve" with an environment.
func (s *supervisor) start(n devNode, binary string, env []string) error {
	cmd := exec.Command(binary, "serve")
	cmd.Env = env
	log := &prefixWriter{prefix: n.ID + " | ", w: s.out}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = outputWait
	cmd.SysProcAttr = apart()
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{node: n, cmd: cmd}
	s.processes = append(s.processes, p)
	s.running++
	go func() {
		err := cmd.Wait()
		log.flush()
		s.exits <- exit{p, err}
	}()
	return nil
}

// note takes the end of a process in.
func (s *supervisor) note(e exit) {
	e.p.ended = true
	s.running--
}

func (e exit) String() string {
	if e.err == nil {
		return e.p.node.ID + " stopped"
	}
	return fmt.Sprintf("%s ended: %v", e.p.node.ID, e.err)
}

// awaitReady returns once every node is ready, or ctx ends. A node that ends before is an
// error, and so is one that takes too long; its text says what the node answers.
func (s *supervisor) awaitReady(ctx context.Context) error {
	deadline := time.NewTimer(readyWait)
	defer deadline.Stop()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for _, p := range s.processes {
		for {
			why := s.notReady(ctx, p.node)
			if why == "" {
				break
			}
			select {
			case <-tick.C:
			case e := <-s.exits:
				s.note(e)
				return fmt.Errorf("%s before the cluster was ready", e)
			case <-deadline.C:
				return fmt.Errorf("%s is not ready after %s: %s", p.node.ID, readyWait, why)
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// notReady is why a node does not say it is ready; "" = it does.
func (s *supervisor) notReady(ctx context.Context, n devNode) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.api()+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return ""
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(body))
}

// watch reports every process that ends, until ctx does or none is left.
func (s *supervisor) watch(ctx context.Context, errOut io.Writer) error {
	for s.running > 0 {
		select {
		case e := <-s.exits:
			s.note(e)
			fmt.Fprintf(errOut, "narad: %s; %d of %d nodes are running\n", e, s.running, len(s.processes))
		case <-ctx.Done():
			return nil
		}
	}
	return fmt.Errorf("none of the %d nodes is running any more", len(s.processes))
}

// stop ends every process gracefully, and returns when all have ended. A second signal,
// or too long a wait, kills them.
func (s *supervisor) stop(errOut io.Writer) {
	s.http.CloseIdleConnections()
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	if s.quiet {
		s.out.mute()
	}
	began := time.Now()
	s.signal(errOut, terminate)
	for s.running > 0 {
		select {
		case e := <-s.exits:
			s.note(e)
			if e.err != nil {
				fmt.Fprintf(errOut, "narad: %s\n", e)
			}
		case <-again:
			if time.Since(began) > oneSignal {
				s.signal(errOut, (*os.Process).Kill)
			}
		case <-timer.C:
			fmt.Fprintf(errOut, "narad: %d nodes still run after %s; they are killed\n", s.running, stopWait)
			s.signal(errOut, (*os.Process).Kill)
		}
	}
	runtime.UnlockOSThread()
}

func (s *supervisor) signal(errOut io.Writer, send func(*os.Process) error) {
	for _, p := range s.processes {
		if p.ended {
			continue
		}
		if err := send(p.cmd.Process); err != nil {
			fmt.Fprintf(errOut, "narad: stop %s: %v\n", p.node.ID, err)
		}
	}
}

// syncWriter lets several processes write lines to one place.
type syncWriter struct {
	mu    sync.Mutex // guards the rest
	w     io.Writer
	muted bool // what is written is dropped
}

func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.muted {
		return len(p), nil
	}
	return s.w.Write(p)
}

func (s *syncWriter) mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.muted = true
}

// lineMax is the length from which a line is passed on in pieces, in bytes.
const lineMax = 64 << 10

// prefixWriter passes whole lines on, each after a prefix. One goroutine writes.
type prefixWriter struct {
	prefix string
	w      io.Writer
	rest   []byte // of a line without its end
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		i := bytes.IndexByte(p.rest, '\n')
		if i < 0 && len(p.rest) < lineMax {
			return len(b), nil
		}
		if i < 0 {
			i = len(p.rest) - 1
		}
		if err := p.line(p.rest[:i+1]); err != nil {
			return 0, err
		}
		p.rest = append(p.rest[:0], p.rest[i+1:]...)
	}
}

func (p *prefixWriter) line(b []byte) error {
	out := append([]byte(p.prefix), bytes.TrimSuffix(b, []byte("\n"))...)
	_, err := p.w.Write(append(out, '\n'))
	return err
}

// flush passes a last line without an end on. Nobody is left to tell of an error.
func (p *prefixWriter) flush() {
	if len(p.rest) > 0 {
		_ = p.line(p.rest)
		p.rest = nil
	}
}
