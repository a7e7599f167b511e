package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

// Pace of the commands that keep going.
const (
	followWait      = 5 * time.Second       // one long poll of --follow
	retryDelayFirst = 50 * time.Millisecond // after a failed request, doubling
	retryDelayMax   = 5 * time.Second       // longest pause between tries
)

// consumeFlags are the flags of narad consume.
type consumeFlags struct {
	partition int
	max       int
	wait      time.Duration
	follow    bool
	ack       bool
	asJSON    bool
	raw       bool
}

func consumeCommand(r *remote) *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use: "consume <topic>", Short: "Lease messages and print them",
		Long: "Lease messages and print them, one a line: [p<partition> @<offset>] key=<key> <time> <payload> <handle>.\n" +
			"Without --ack a message comes back when its lease ends; settle it with 'narad ack <topic> <handle>'.\n" +
			"With --ack each message is acked once it was printed.",
		Example: "  narad consume orders --ack\n  narad consume orders --follow --ack --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.max < 1 || f.max > 100 {
				return usageError{fmt.Errorf("--max %d: want 1 to 100", f.max)}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			if f.follow {
				return f.run(cmd.Context(), cl, r, args[0])
			}
			ds, err := cl.Receive(cmd.Context(), args[0], client.ReceiveOptions{Wait: f.wait, Max: f.max, Pin: client.Partition(f.partition)})
			if err != nil {
				return fmt.Errorf("consume %q: %w", args[0], err)
			}
			return f.handle(cmd.Context(), cl, r, args[0], ds)
		},
	}
	c.Flags().IntVar(&f.partition, "partition", client.AnyPartition, "take from this partition only (-1 = any)")
	c.Flags().IntVar(&f.max, "max", 1, "messages to take at once, 1 to 100")
	c.Flags().DurationVar(&f.wait, "wait", 0, "wait this long for a message when there is none")
	c.Flags().BoolVar(&f.follow, "follow", false, "keep consuming until interrupted")
	c.Flags().BoolVar(&f.ack, "ack", false, "ack each message after printing it")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print each message as one JSON object")
	c.Flags().BoolVar(&f.raw, "raw", false, "print payloads alone")
	return c
}

// run consumes until the context ends; failures that may pass are retried with a
// growing pause. Ctrl-C after any number of messages is a normal end.
func (f *consumeFlags) run(ctx context.Context, cl *client.Client, r *remote, topic string) error {
	delay := retryDelayFirst
	for total := 0; ; {
		ds, err := cl.Receive(ctx, topic, client.ReceiveOptions{Wait: followWait, Max: f.max, Pin: client.Partition(f.partition)})
		switch {
		case ctx.Err() != nil:
			fmt.Fprintf(r.err, "%d message(s)\n", total)
			return nil
		case err != nil && !client.Retryable(err):
			return fmt.Errorf("consume %q: %w", topic, err)
		case err != nil:
			fmt.Fprintf(r.err, "narad: consume %q: %v; trying again\n", topic, err)
			if !pause(ctx, delay) {
				return nil
			}
			delay = min(2*delay, retryDelayMax)
			continue
		}
		delay = retryDelayFirst
		// What was taken is printed and acked even while stopping: its lease is ours.
		if err := f.handle(context.WithoutCancel(ctx), cl, r, topic, ds); err != nil {
			return err
		}
		total += len(ds)
	}
}

func (f *consumeFlags) handle(ctx context.Context, cl *client.Client, r *remote, topic string, ds []client.Delivery) error {
	for _, d := range ds {
		if err := f.print(r.out, d); err != nil {
			return err
		}
		if !f.ack {
			continue
		}
		if err := cl.Ack(ctx, topic, d.Handle); err != nil {
			return fmt.Errorf("ack %s of %q: %w", d.Handle, topic, err)
		}
	}
	return nil
}

func (f *consumeFlags) print(w io.Writer, d client.Delivery) error {
	var err error
	switch {
	case f.asJSON:
		err = json.NewEncoder(w).Encode(jsonMessage(d))
	case f.raw:
		_, err = w.Write(append(bytes.Clone(d.Payload), '\n'))
	default:
		line := messageLine(d, interactive(w))
		if !f.ack && d.Handle != "" {
			line += " " + d.Handle
		}
		_, err = fmt.Fprintln(w, line)
	}
	return err
}

// pause waits d; false means the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func replayCommand(r *remote) *cobra.Command {
	var partition int
	var from, to int64
	var out consumeFlags
	c := &cobra.Command{
		Use: "replay <topic> --partition <n>", Short: "Read stored messages again, without leases",
		Example: "  narad replay orders --partition 0 --from 100 --to 200",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if partition < 0 {
				return usageError{errors.New("--partition is required: there is no order across partitions")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			lo, hi, err := replayRange(cmd, cl, args[0], partition, from, to)
			if err != nil {
				return err
			}
			n := int64(0)
			if lo < hi {
				n, err = out.printFrom(cmd.Context(), cl, r.out, args[0], partition, lo, hi)
			}
			if err != nil {
				return fmt.Errorf("replay %q: %w", args[0], err)
			}
			fmt.Fprintf(r.err, "%d message(s) replayed from p%d [%d, %d)\n", n, partition, lo, hi)
			return nil
		},
	}
	c.Flags().IntVar(&partition, "partition", client.AnyPartition, "partition to read (required)")
	c.Flags().Int64Var(&from, "from", 0, "first offset (default: the oldest retained)")
	c.Flags().Int64Var(&to, "to", 0, "offset to stop before (default: the end when the command starts)")
	c.Flags().BoolVar(&out.asJSON, "json", false, "print each message as one JSON object")
	c.Flags().BoolVar(&out.raw, "raw", false, "print payloads alone")
	return c
}

// replayRange fills in the ends that were not given from the partition's state.
func replayRange(cmd *cobra.Command, cl *client.Client, topic string, partition int, from, to int64) (lo, hi int64, err error) {
	givenFrom, givenTo := cmd.Flags().Changed("from"), cmd.Flags().Changed("to")
	if givenFrom && from < 0 || givenTo && to < from {
		return 0, 0, usageError{fmt.Errorf("--from %d --to %d: want 0 <= from <= to", from, to)}
	}
	if givenFrom && givenTo {
		return from, to, nil
	}
	t, err := cl.DescribeTopic(cmd.Context(), topic)
	if err != nil {
		return 0, 0, fmt.Errorf("replay %q: %w", topic, err)
	}
	for _, p := range t.PartitionStats {
		if p.Index != partition {
			continue
		}
		if p.Status != "ok" {
			return 0, 0, fmt.Errorf("replay %q: partition %d is on %s, which is %s; give --from and --to", topic, partition, p.OwnerNode, p.OwnerLiveness)
		}
		if !givenFrom {
			from = p.OldestOffset
		}
		if !givenTo {
			to = p.HighWatermark
		}
		return from, to, nil
	}
	return 0, 0, fmt.Errorf("replay %q: no partition %d: the topic has %d", topic, partition, t.Partitions)
}

func ackCommand(r *remote) *cobra.Command {
	var extend, nack bool
	c := &cobra.Command{
		Use: "ack <topic> <handle>...", Short: "Settle leases: ack, extend or give back",
		Example: "  narad ack orders 2:1187:5530917400218863\n  narad ack orders 2:1187:5530917400218863 --extend",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if extend && nack {
				return usageError{errors.New("--extend and --nack exclude each other")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			settle := cl.Ack
			switch {
			case extend:
				settle = cl.Extend
			case nack:
				settle = cl.Nack
			}
			var failed error
			for _, h := range args[1:] {
				if err := settle(cmd.Context(), args[0], h); err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", h, err))
				}
			}
			return failed
		},
	}
	c.Flags().BoolVar(&extend, "extend", false, "restart the lease instead of acking")
	c.Flags().BoolVar(&nack, "nack", false, "give the message back instead of acking")
	return c
}

// messageLine is the one-line form of a message: JSON verbatim, text as text, binary
// as hex with its size (spec/operations section 8.5). On a terminal control
// characters are escaped.
func messageLine(d client.Delivery, terminal bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[p%d @%d] ", d.Partition, d.Offset)
	if len(d.Key) > 0 {
		if utf8.Valid(d.Key) {
			fmt.Fprintf(&b, "key=%s ", printable(string(d.Key), terminal))
		} else {
			fmt.Fprintf(&b, "key=%s(binary) ", hex.EncodeToString(d.Key))
		}
	}
	b.WriteString(d.Timestamp.Local().Format(time.TimeOnly))
	b.WriteByte(' ')
	if utf8.Valid(d.Payload) {
		b.WriteString(printable(string(d.Payload), terminal))
	} else {
		fmt.Fprintf(&b, "%s (%d bytes)", hex.EncodeToString(d.Payload), len(d.Payload))
	}
	return b.String()
}

func printable(s string, terminal bool) string {
	if !terminal {
		return s
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\t' || c == 0x7f {
			return utf8.RuneError
		}
		return c
	}, s)
}

// jsonMessage is the message object as the server sends it.
func jsonMessage(d client.Delivery) map[string]any {
	m := map[string]any{
		"topic": d.Topic, "partition": d.Partition, "offset": d.Offset,
		"payload": d.Raw, "timestamp": d.Timestamp.Unix(),
	}
	if len(d.Key) > 0 {
		if utf8.Valid(d.Key) {
			m["key"] = string(d.Key)
		} else {
			m["key"], m["key_encoding"] = d.Key, "base64"
		}
	}
	if d.Binary {
		m["payload_encoding"] = "base64"
	}
	if d.Handle != "" {
		m["receipt_handle"], m["delivery_count"] = d.Handle, d.DeliveryCount
	}
	return m
}
