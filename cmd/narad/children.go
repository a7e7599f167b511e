package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/client"
)

func topicAttach(r *remote) *cobra.Command {
	var delay time.Duration
	c := &cobra.Command{
		Use: "attach <parent> <child>", Short: "Copy what is produced to a topic into another from now on", Args: cobra.ExactArgs(2),
		Example: "  narad topic attach orders orders-audit\n  narad topic attach pay-retry-1m pay-retry-1m-due --delay 1m",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			t, err := cl.Attach(cmd.Context(), args[0], args[1], delay)
			if err != nil {
				return fmt.Errorf("attach topic %q to %q: %w", args[1], args[0], err)
			}
			return printJSON(r.out, t)
		},
	}
	c.Flags().DurationVar(&delay, "delay", 0, "copy each message this long after it was committed to the parent")
	return c
}

func topicDetach(r *remote) *cobra.Command {
	return &cobra.Command{
		Use: "detach <parent> <child>", Short: "Stop copying; the child keeps what it has", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			if err := cl.Detach(cmd.Context(), args[0], args[1]); err != nil {
				return fmt.Errorf("detach topic %q from %q: %w", args[1], args[0], err)
			}
			return nil
		},
	}
}

func topicChildren(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "children <parent>", Short: "List a topic's children and how far behind they are", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := r.open()
			if err != nil {
				return err
			}
			list, err := cl.Children(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("children of topic %q: %w", args[0], err)
			}
			if asJSON {
				return printJSON(r.out, list)
			}
			tw := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "NAME\tDELAY\tLAG")
			for _, ch := range list.Children {
				fmt.Fprintf(tw, "%s\t%s\t%s\n", ch.Name, delayText(ch.DelayMS), lagText(ch))
			}
			return tw.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

func delayText(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// lagText marks a lag that is only a lower bound.
func lagText(c client.ChildStatus) string {
	if c.LagComplete {
		return fmt.Sprint(c.LagMessages)
	}
	return fmt.Sprintf(">=%d", c.LagMessages)
}

// waitFlags are what topic wait waits for and how (spec/operations section 8.4).
type waitFlags struct {
	lagZero                   bool
	stable, timeout, interval time.Duration
}

func topicWait(r *remote) *cobra.Command {
	var w waitFlags
	c := &cobra.Command{
		Use: "wait <parent> <child>", Short: "Wait until a child has everything its parent has", Args: cobra.ExactArgs(2),
		Long: "Wait until a child has everything its parent has: exit code 0, or 1 after --timeout.\n\n" +
			"A lag that some partition did not report never counts as zero. Messages that were\n" +
			"accepted and are not committed to the parent yet are not part of the lag.",
		Example: "  narad topic wait orders orders-audit --lag-zero --stable 10s",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !w.lagZero {
				return usageError{errors.New("say what to wait for: --lag-zero")}
			}
			if w.interval <= 0 || w.timeout <= 0 || w.stable < 0 {
				return usageError{errors.New("--interval and --timeout must be positive, --stable not negative")}
			}
			cl, err := r.open()
			if err != nil {
				return err
			}
			if err := w.wait(cmd.Context(), cl, args[0], args[1]); err != nil {
				return fmt.Errorf("wait for topic %q under %q: %w", args[1], args[0], err)
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&w.lagZero, "lag-zero", false, "wait for a lag of 0, reported by every partition")
	f.DurationVar(&w.stable, "stable", 0, "for this long without interruption")
	f.DurationVar(&w.timeout, "timeout", 30*time.Minute, "give up after this long")
	f.DurationVar(&w.interval, "interval", 2*time.Second, "ask this often")
	return c
}

// lister is the part of the client that wait needs.
type lister interface {
	Children(ctx context.Context, parent string) (client.Children, error)
}

// wait asks until the lag has been 0 for as long as wanted. An answer that could not be
// had interrupts the time, like a lag.
func (w waitFlags) wait(ctx context.Context, cl lister, parent, child string) error {
	deadline := time.Now().Add(w.timeout)
	var since time.Time // of the first zero in a row; zero = the last answer was none
	var last error
	for {
		zero, err := lagZero(ctx, cl, parent, child)
		switch {
		case err != nil && !client.Retryable(err):
			return err
		case !zero:
			since, last = time.Time{}, err
		case since.IsZero():
			since = time.Now()
		}
		if zero && time.Since(since) >= w.stable {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return errors.Join(fmt.Errorf("the lag was not 0 for %s within %s", w.stable, w.timeout), last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(w.interval, left)):
		}
	}
}

func lagZero(ctx context.Context, cl lister, parent, child string) (bool, error) {
	list, err := cl.Children(ctx, parent)
	if err != nil {
		return false, err
	}
	for _, c := range list.Children {
		if c.Name == child {
			return c.LagComplete && c.LagMessages == 0, nil
		}
	}
	return false, fmt.Errorf("%q is no child of %q", child, parent)
}
