package client_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

// addr is the base URL of a node that all tests and examples share; each works on
// topics of its own.
var addr string

// lifetime stands for the whole test process where a node wants a test.
type lifetime struct {
	testing.TB
	cleanups []func()
}

func (l *lifetime) Helper()                      {}
func (l *lifetime) Failed() bool                 { return false }
func (l *lifetime) Cleanup(f func())             { l.cleanups = append(l.cleanups, f) }
func (l *lifetime) Fatal(args ...any)            { log.Fatal(args...) }
func (l *lifetime) Fatalf(f string, args ...any) { log.Fatalf(f, args...) }

func TestMain(m *testing.M) {
	flag.Parse()
	// The fuzz targets need no node, and the go command kills the workers it fuzzes with:
	// a node of theirs would be left behind and hold their pipes open.
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "narad-client-")
	if err != nil {
		log.Fatal(err)
	}
	all := &lifetime{}
	node := testutil.NewNode(all, dir)
	node.Start()
	addr = node.URL
	// The slow tests wait for leases to run out, they do not compute.
	if err := flag.Set("test.parallel", "16"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	for _, f := range all.cleanups {
		f()
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// dial makes a client for the shared node; closed with the test.
func dial(t testing.TB, opts ...client.Option) *client.Client { return dialTo(t, addr, opts...) }

func dialTo(t testing.TB, addrs string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var topicNumber atomic.Int64

// newTopic makes a topic of the test's own.
func newTopic(t testing.TB, c *client.Client, in client.CreateTopic) string {
	t.Helper()
	if in.Name == "" {
		in.Name = fmt.Sprintf("t%d", topicNumber.Add(1))
	}
	if _, err := c.CreateTopic(context.Background(), in); err != nil {
		t.Fatal(err)
	}
	return in.Name
}
