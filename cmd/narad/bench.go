package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

// benchFlags are the flags of narad bench, shared by its verbs.
type benchFlags struct {
	topic       string
	size        int
	connections int
	batch       int
	duration    time.Duration
	rate        float64
	partitions  int
	fill        int
	file        string   // holds the message to send
	message     template // its content, or one made of size bytes
	batching    bool     // through the client's Producer
	handlers    bool     // through the client's Consume
	asJSON      bool
	consumeAt   string // URL of the node that is consumed from; "" = the one produced to
}

func benchCommand(r *remote) *cobra.Command {
	var f benchFlags
	c := group("bench", "Measure throughput and latency",
		benchVerb(r, &f, "produce", "Produce as fast as the connections allow, or at a rate",
			"Every connection produces one message (or batch) after the other; the latency is that of one request.", f.produce),
		benchVerb(r, &f, "consume", "Consume and ack what a topic holds",
			"Fills the topic first (--fill), then every connection consumes and acks batches until it is empty or\nthe duration is over; the latency is that of one consume and its ack.", f.consume),
		benchVerb(r, &f, "e2e", "Produce, consume and ack at the same time",
			"Half of the connections produce, half consume and ack; the latency is that of one message, from the\nmoment before its produce to the moment its consume answered.", f.e2e),
	)
	c.Long = "Measure a running node with a topic of its own, which is deleted afterwards (unless --topic names one)."
	return c
}

func benchVerb(r *remote, f *benchFlags, use, short, long string, run func(context.Context, *benchRun) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: short + ".\n\n" + long, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  narad bench %s --connections 64 --size 1024 --duration 10s --json", use),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return usageError{err}
			}
			if err := f.load(); err != nil {
				return err
			}
			cl, err := r.open(client.WithIdleConnections(f.connections+8), client.WithTimeout(30*time.Second), client.WithRetries(1))
			if err != nil {
				return err
			}
			defer cl.Close()
			b := newBenchRun(use, f, cl, r.stdio)
			if f.consumeAt != "" {
				if b.taker, err = r.openAt(f.consumeAt, client.WithIdleConnections(f.connections+8), client.WithTimeout(30*time.Second), client.WithRetries(1)); err != nil {
					return err
				}
				defer b.taker.Close()
			}
			cleanup, err := b.prepare(cmd.Context())
			if err != nil {
				return err
			}
			runErr := run(cmd.Context(), b)
			if err := cleanup(); err != nil {
				runErr = errors.Join(runErr, err)
			}
			if runErr != nil {
				return runErr
			}
			return b.report()
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.topic, "topic", "", "use this existing topic (default: a new one, deleted afterwards)")
	fl.IntVar(&f.size, "size", 1024, "payload size in bytes")
	fl.IntVarP(&f.connections, "connections", "c", 64, "requests in flight, each on its own connection")
	fl.IntVarP(&f.batch, "batch", "b", 1, "messages per request")
	fl.DurationVarP(&f.duration, "duration", "d", 10*time.Second, "how long to run")
	fl.Float64Var(&f.rate, "rate", 0, "messages per second over all connections (0 = as fast as possible)")
	fl.IntVar(&f.partitions, "partitions", 0, "partitions of the new topic (0 = server default)")
	fl.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	switch use {
	case "produce":
		fl.StringVar(&f.file, "file", "", "send this file's content as every message, instead of --size bytes")
		fl.BoolVar(&f.batching, "batching", false, "through the Go client's batching Producer: --batch is its batch size, --connections its requests in flight")
	case "e2e":
		fl.StringVar(&f.consumeAt, "consume-at", "", "consume and ack at this node instead of --server, to see the way between two nodes")
	case "consume":
		fl.IntVar(&f.fill, "fill", 200_000, "messages to produce before measuring")
		fl.BoolVar(&f.handlers, "handlers", false, "through the Go client's Consume: --connections handlers, --batch messages leased for each")
	}
	return c
}

// Bounds of the bench flags.
const (
	benchSizeMin        = 40 // the send time and its JSON around it
	benchSizeMax        = 1 << 20
	benchConnectionsMax = 4096
	benchBatchMax       = 1000
	consumeBatchMax     = 100
)

func (f *benchFlags) validate() error {
	switch {
	case f.size < benchSizeMin || f.size > benchSizeMax:
		return fmt.Errorf("--size %d: want %d to %d", f.size, benchSizeMin, benchSizeMax)
	case f.connections < 1 || f.connections > benchConnectionsMax:
		return fmt.Errorf("--connections %d: want 1 to %d", f.connections, benchConnectionsMax)
	case f.batch < 1 || f.batch > benchBatchMax:
		return fmt.Errorf("--batch %d: want 1 to %d", f.batch, benchBatchMax)
	case f.duration <= 0:
		return fmt.Errorf("--duration %v: want more than 0", f.duration)
	case f.rate < 0:
		return fmt.Errorf("--rate %v: want 0 or more", f.rate)
	case f.batch*f.size > 12<<20:
		return fmt.Errorf("--batch %d of --size %d is %d bytes: a batch body is at most 16 MiB", f.batch, f.size, f.batch*f.size)
	}
	return nil
}

// load reads the message of --file, or makes one.
func (f *benchFlags) load() error {
	if f.file == "" {
		f.message = newTemplate(f.size)
		return nil
	}
	b, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	if len(b) == 0 || len(b) > benchSizeMax {
		return fmt.Errorf("--file %s: %d bytes, want 1 to %d", f.file, len(b), benchSizeMax)
	}
	f.message, f.size = b, len(b)
	return nil
}

// template is a payload of a fixed size whose send time can be set again and again:
// {"t":<19 digits>,"p":"<random letters>"}.
type template []byte

const stampAt = len(`{"t":`)

func newTemplate(size int) template {
	b := fmt.Appendf(make([]byte, 0, size), `{"t":%d,"p":"`, int64(1e18)) // JSON even before it is stamped: other payloads travel as base64
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	for len(b) < size-2 {
		b = append(b, alphabet[rand.IntN(len(alphabet))])
	}
	return append(b, `"}`...)
}

// copy is a template of its own for one worker.
func (t template) copy() template { return slices.Clone(t) }

// stamp sets the send time, nanoseconds since the epoch: 19 digits until 2286. A message
// from a file stays as it is.
func (t template) stamp(ns int64) {
	if stampOf(t) == 0 {
		return
	}
	for i := stampAt + 18; i >= stampAt; i-- {
		t[i] = byte('0' + ns%10)
		ns /= 10
	}
}

// stampOf reads the send time back; 0 = not a payload of ours.
func stampOf(p []byte) (ns int64) {
	if len(p) < stampAt+19 {
		return 0
	}
	for _, c := range p[stampAt : stampAt+19] {
		if c < '0' || c > '9' {
			return 0
		}
		ns = ns*10 + int64(c-'0')
	}
	return ns
}
