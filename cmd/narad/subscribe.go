package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

// peekEvery is how often sub --peek looks past the end of each partition.
const peekEvery = 250 * time.Millisecond

// subscribeFlags are the flags of narad sub.
type subscribeFlags struct {
	noAck     bool
	peek      bool
	raw       bool
	partition int
	from      int64
}

func subscribeCommand(r *remote) *cobra.Command {
	var f subscribeFlags
	c := &cobra.Command{
		Use: "sub <topic>", Short: "Be a consumer: print and ack every message, until interrupted",
		Long: "Be a consumer of the topic's queue: print and ack every message, until interrupted.\n" +
			"With --peek take nothing from the queue: print what is committed from now on, by replay.",
		Example: "  narad sub orders\n  narad sub orders --peek --partition 0 --from 100",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("from") && !(f.peek && f.partition >= 0) {
				return usageError{errors.New("--from needs --peek and --partition")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			if f.peek {
				return f.follow(cmd.Context(), cl, r, args[0], cmd.Flags().Changed("from"))
			}
			q := consumeFlags{partition: f.partition, max: 1, ack: !f.noAck, raw: f.raw}
			return q.run(cmd.Context(), cl, r, args[0])
		},
	}
	c.Flags().BoolVar(&f.noAck, "no-ack", false, "leave the messages to their leases: they come back")
	c.Flags().BoolVar(&f.peek, "peek", false, "read along without leases")
	c.Flags().BoolVar(&f.raw, "raw", false, "print payloads alone")
	c.Flags().IntVar(&f.partition, "partition", client.AnyPartition, "this partition only (-1 = all)")
	c.Flags().Int64Var(&f.from, "from", 0, "with --peek and --partition: start at this offset instead of the end")
	return c
}

// follow prints what partitions get, from their ends (or --from) on, until the
// context ends.
func (f *subscribeFlags) follow(ctx context.Context, cl *client.Client, r *remote, topic string, fromGiven bool) error {
	next := map[int]int64{}
	if fromGiven {
		next[f.partition] = f.from
	} else {
		t, err := cl.DescribeTopic(ctx, topic)
		if err != nil {
			return fmt.Errorf("sub %q: %w", topic, err)
		}
		for _, p := range t.PartitionStats {
			if f.partition >= 0 && p.Index != f.partition {
				continue
			}
			if p.Status != "ok" {
				return fmt.Errorf("sub %q: partition %d is on %s, which is %s", topic, p.Index, p.OwnerNode, p.OwnerLiveness)
			}
			next[p.Index] = p.HighWatermark
		}
		if len(next) == 0 {
			return fmt.Errorf("sub %q: no partition %d: the topic has %d", topic, f.partition, t.Partitions)
		}
	}
	out := consumeFlags{raw: f.raw}
	for total := 0; ; {
		for p := range next {
			n, err := out.printFrom(ctx, cl, r.out, topic, p, next[p], 0)
			next[p] += n
			total += int(n)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("sub %q: %w", topic, err)
			}
		}
		if !pause(ctx, peekEvery) {
			fmt.Fprintf(r.err, "%d message(s)\n", total)
			return nil
		}
	}
}

// printFrom prints a partition's messages from an offset on, to its end or to before
// limit (0 = none), and returns how many.
func (f *consumeFlags) printFrom(ctx context.Context, cl *client.Client, w io.Writer, topic string, partition int, from, limit int64) (n int64, err error) {
	for off := from; limit == 0 || off < limit; off++ {
		d, ok, err := cl.Read(ctx, topic, partition, off)
		if err != nil || !ok {
			return n, err
		}
		if err := f.print(w, d); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
