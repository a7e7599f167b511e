package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// output collects what a process prints.
type output struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// playground is a running "narad cluster dev".
type playground struct {
	cmd      *exec.Cmd
	out, err output
	ended    chan error
}

// play starts one and waits until it says that it is ready.
func play(t *testing.T, tmp string, args ...string) *playground {
	t.Helper()
	p := &playground{ended: make(chan error, 1)}
	p.cmd = exec.Command(testutil.Binary(t), append([]string{"cluster", "dev"}, args...)...)
	p.cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "NARAD_SECURITY_ENABLED=true") // of no consequence to its nodes
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.ended
		}
	})
	testutil.Eventually(t, time.Minute, func() bool { return strings.Contains(p.out.String(), "narad  cluster of") }, "the banner")
	return p
}

// stop interrupts it, and returns how it ended.
func (p *playground) stop(t *testing.T) error {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("it did not end; it printed\n%s%s", p.out.String(), p.err.String())
		return nil
	}
}

// nodes are the URLs and process ids of the banner.
func (p *playground) nodes(t *testing.T) (urls []string, pids []int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^  n\d  (http://\S+)  process (\d+)$`).FindAllStringSubmatch(p.out.String(), -1) {
		pid, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		urls, pids = append(urls, m[1]), append(pids, pid)
	}
	return urls, pids
}

// freeBase finds room for some nodes in a row.
func freeBase(t *testing.T, nodes int) int {
	t.Helper()
	for range 50 {
		var s portSet
		port, err := s.take(0)
		s.release()
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.takeFrom(port, 2*nodes); err == nil {
			s.release()
			return port
		}
	}
	t.Fatal("no free ports in a row")
	return 0
}

// A scratch cluster: one cluster of three, its logs prefixed, a killed node reported, and
// nothing left of it at the end, also of a node that was paused.
func TestClusterDevScratch(t *testing.T) {
	tmp := t.TempDir()
	p := play(t, tmp, "--base-port", strconv.Itoa(freeBase(t, 3)), "--log-level", "info")
	urls, pids := p.nodes(t)
	if len(urls) != 3 {
		t.Fatalf("banner: %s", p.out.String())
	}
	c, err := client.New(urls[2])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testutil.Eventually(t, 30*time.Second, func() bool {
		members, err := c.Members(t.Context(), false)
		return err == nil && len(members) == 3
	}, "three members of one cluster")
	changesThroughEveryNode(t, urls)
	for _, prefix := range []string{"n1 | time=", "n2 | time=", "n3 | time="} {
		if !strings.Contains(p.out.String(), prefix) {
			t.Errorf("no line begins with %q", prefix)
		}
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 10*time.Second, func() bool {
		return strings.Contains(p.err.String(), "narad: n1 ended: signal: killed; 2 of 3 nodes are running")
	}, "a report of the killed node")
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.stop(t); err != nil {
		t.Errorf("it ended with %v\n%s", err, p.err.String())
	}
	if took := time.Since(start); took >= stopWait {
		t.Errorf("stopping took %s, with one node killed and one paused", took)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// changesThroughEveryNode makes topics on each node and reads them back there at once
// (spec/http-api RT-3): two of the three do not lead.
func changesThroughEveryNode(t *testing.T, urls []string) {
	t.Helper()
	for round := range 3 * len(urls) {
		var cs []*client.Client
		for i := range urls {
			c, err := client.New(urls[(round+i)%len(urls)])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			cs = append(cs, c)
		}
		name, parts := fmt.Sprint("round-", round), 4
		if _, err := cs[0].CreateTopic(t.Context(), client.CreateTopic{Name: name}); err != nil {
			t.Fatalf("create through %s: %v", urls[round%len(urls)], err)
		}
		if _, err := cs[0].DescribeTopic(t.Context(), name); err != nil {
			t.Errorf("the node that answered the create does not know the topic: %v", err)
		}
		if got, err := cs[1].AlterTopic(t.Context(), name, client.AlterTopic{Partitions: &parts}); err != nil || got.Partitions != parts {
			t.Errorf("alter: %+v, %v", got, err)
		}
		if got, err := cs[1].DescribeTopic(t.Context(), name); err != nil || got.Partitions != parts {
			t.Errorf("the node that answered the alter shows %+v, %v", got, err)
		}
		_, err := cs[2].CreateTopic(t.Context(), client.CreateTopic{Name: strings.ToUpper(name)})
		if !errors.Is(err, client.ErrNameTaken) {
			t.Errorf("another spelling: %v", err)
		}
		if err := cs[2].DeleteTopic(t.Context(), name); err != nil {
			t.Errorf("delete: %v", err)
		}
		if _, err := cs[2].DescribeTopic(t.Context(), name); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("the node that answered the delete: %v", err)
		}
	}
}

// A given directory is kept, resumed on its ports, and grows.
func TestClusterDevResumedAndGrown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "playground")
	p := play(t, t.TempDir(), "--dir", dir, "--base-port", strconv.Itoa(freeBase(t, 3)))
	before, _ := p.nodes(t)
	resp, err := http.Post(before[0]+"/v1/topics", "application/json", strings.NewReader(`{"name":"kept"}`))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Fatalf("create: %s", resp.Status)
	}
	if err := p.stop(t); err != nil {
		t.Fatalf("it ended with %v\n%s", err, p.err.String())
	}

	p = play(t, t.TempDir(), "--dir", dir, "--nodes", "4")
	after, _ := p.nodes(t)
	if len(after) != 4 || strings.Join(after[:3], " ") != strings.Join(before, " ") {
		t.Fatalf("resumed at %v, was at %v", after, before)
	}
	c, err := client.New(after[3])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.DescribeTopic(t.Context(), "kept"); err != nil {
		t.Errorf("through the node that joined: %v", err)
	}
	if err := p.stop(t); err != nil {
		t.Errorf("it ended with %v\n%s", err, p.err.String())
	}
	http.DefaultClient.CloseIdleConnections()
}
