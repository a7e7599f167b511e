// Command narad is the whole of Narad in one binary: the node (narad serve, narad
// server start) and a client of its HTTP API (every other verb).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes (spec/operations section 8.1).
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 64
)

// release is set at link time for release builds: -ldflags "-X main.release=v1.2.3".
var release = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// usageError marks a mistake in the command line itself.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// run executes one command line and returns its exit code; errors go to standard
// error as "narad: <message>".
func run(ctx context.Context, args []string, io stdio) int {
	root := newRoot(io)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(io.err, "narad: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitFailure
	}
	fmt.Fprintf(io.err, "narad: %v\n", err)
	return exitFailure
}

func newRoot(io stdio) *cobra.Command {
	root := &cobra.Command{
		Use:           "narad",
		Short:         "A durable work queue over plain HTTP, in one binary",
		Long:          "Narad is a durable work queue over plain HTTP, in one binary.\n\nRun a node with 'narad server start --dev', then create a topic, produce and consume.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	rem := newRemote(io, root)
	root.AddCommand(
		serveCommand(io), serverCommand(rem), versionCommand(io), contextCommand(rem),
		topicCommand(rem), produceCommand(rem), consumeCommand(rem), subscribeCommand(rem), replayCommand(rem),
		ackCommand(rem), userCommand(rem), clusterCommand(rem), benchCommand(rem),
	)
	strict(root)
	return root
}

// strict makes a wrong number of arguments and an unknown verb usage errors.
func strict(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// group is a command that only holds others: alone it prints its help, and an
// unknown verb under it is a usage error.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(subs...)
	return c
}

func versionCommand(io stdio) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if release != "" {
				fmt.Fprintf(io.out, "narad %s\n", release)
			} else {
				fmt.Fprintf(io.out, "narad dev (%s)\n", commit())
			}
			return nil
		},
	}
}

// version names the build: the release, or dev.
func version() string {
	if release != "" {
		return release
	}
	return "dev"
}

// commit is the source revision the toolchain stamped into the build.
func commit() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "unknown"
}
