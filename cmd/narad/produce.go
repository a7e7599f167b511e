package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

// Bounds of producing lines.
const (
	payloadBytesMax = 1 << 20 // one message, the server's limit
	batchMessages   = 500     // lines in one request
	batchBytesMax   = 4 << 20 // payload in one request
	progressEvery   = 500 * time.Millisecond
)

// produceFlags are the flags of narad produce.
type produceFlags struct {
	key       string
	partition int
	file      string
	lines     bool
	count     int
	rate      float64
}

func produceCommand(r *remote) *cobra.Command {
	var f produceFlags
	c := &cobra.Command{
		Use: "produce <topic> [message]", Aliases: []string{"pub"}, Short: "Produce messages",
		Long: "Produce one message: the argument, a file (--file), or standard input.\n" +
			"With --lines every line of the file or of standard input is a message of its own,\n" +
			"sent in batches; a batch is stored as a whole or not at all.",
		Example: "  narad produce orders '{\"id\":1}' --key customer-7\n" +
			"  narad produce orders --file order.json\n" +
			"  narad produce orders --lines --file orders.ndjson",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && (f.file != "" || f.lines) {
				return usageError{errors.New("give the message as an argument, or --file or --lines, not both")}
			}
			if f.count < 1 || f.rate < 0 || f.lines && f.count > 1 {
				return usageError{errors.New("--count must be at least 1, --rate at least 0, and neither goes with --lines")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return f.one(cmd.Context(), cl, r, args[0], []byte(args[1]))
			}
			in, name := r.in, "standard input"
			if f.file != "" {
				file, err := os.Open(f.file)
				if err != nil {
					return err
				}
				defer file.Close()
				in, name = file, f.file
			}
			if f.lines {
				return f.each(cmd.Context(), cl, r, args[0], in, name)
			}
			body, err := io.ReadAll(io.LimitReader(in, payloadBytesMax+1))
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			if len(body) > payloadBytesMax {
				return fmt.Errorf("%s is larger than one message may be (%d bytes); --lines sends each line as a message", name, payloadBytesMax)
			}
			return f.one(cmd.Context(), cl, r, args[0], body)
		},
	}
	c.Flags().StringVarP(&f.key, "key", "k", "", "message key: the same key goes to the same partition")
	c.Flags().IntVar(&f.partition, "partition", client.AnyPartition, "store in this partition (-1 = by key, or in turn)")
	c.Flags().StringVarP(&f.file, "file", "f", "", "read from this file instead of standard input")
	c.Flags().BoolVar(&f.lines, "lines", false, "every line is a message; empty lines are passed over")
	c.Flags().IntVar(&f.count, "count", 1, "produce the message so many times")
	c.Flags().Float64Var(&f.rate, "rate", 0, "with --count: messages per second (0 = as fast as it goes)")
	return c
}

func (f *produceFlags) message(body []byte) client.Message {
	return client.Message{Key: []byte(f.key), Payload: body, Pin: client.Partition(f.partition)}
}

// one produces one message, as often as asked.
func (f *produceFlags) one(ctx context.Context, cl *client.Client, r *remote, topic string, body []byte) error {
	start := time.Now()
	for n := range f.count {
		if f.rate > 0 && n > 0 && !pause(ctx, time.Until(start.Add(time.Duration(float64(n)/f.rate*float64(time.Second))))) {
			return fmt.Errorf("interrupted after %d messages", n)
		}
		if err := cl.Produce(ctx, topic, f.message(body)); err != nil {
			return fmt.Errorf("produce to %q after %d messages: %w", topic, n, err)
		}
	}
	if f.count == 1 {
		fmt.Fprintf(r.err, "accepted (%d bytes)\n", len(body))
		return nil
	}
	took := time.Since(start)
	fmt.Fprintf(r.err, "accepted %d messages in %v (%.0f msg/s)\n", f.count, took.Round(time.Millisecond), float64(f.count)/took.Seconds())
	return nil
}

// each sends the lines of in as batches, with progress on a terminal. A failure says
// from which line on nothing is known to be stored.
func (f *produceFlags) each(ctx context.Context, cl *client.Client, r *remote, topic string, in io.Reader, name string) error {
	var (
		batch       []client.Message
		size, sent  int
		line, first int
		start       = time.Now()
		shown       = start
		live        = interactive(r.err)
	)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := cl.ProduceBatch(ctx, topic, batch); err != nil {
			return fmt.Errorf("produce to %q: %d messages accepted; the batch of lines %d to %d of %s failed: %w",
				topic, sent, first, line, name, err)
		}
		sent += len(batch)
		batch, size = batch[:0], 0
		if live && time.Since(shown) >= progressEvery {
			shown = time.Now()
			fmt.Fprintf(r.err, "\raccepted %d messages (%.0f msg/s) ", sent, float64(sent)/time.Since(start).Seconds())
		}
		return nil
	}
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 64<<10), payloadBytesMax+2)
	for sc.Scan() {
		line++
		if len(sc.Bytes()) == 0 {
			continue
		}
		if len(batch) == 0 {
			first = line
		}
		batch = append(batch, f.message(bytes.Clone(sc.Bytes())))
		size += len(sc.Bytes())
		if len(batch) == batchMessages || size >= batchBytesMax {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("line %d is longer than one message may be (%d bytes)", line+1, payloadBytesMax)
		}
		return fmt.Errorf("read %s after %d accepted messages: %w", name, sent, err)
	}
	if err := flush(); err != nil {
		return err
	}
	took := time.Since(start)
	if live {
		fmt.Fprint(r.err, "\r")
	}
	fmt.Fprintf(r.err, "accepted %d messages in %v (%.0f msg/s)\n", sent, took.Round(time.Millisecond), float64(sent)/took.Seconds())
	return nil
}
