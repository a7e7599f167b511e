package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/internal/config"
)

// Sizes of a playground cluster. Fewer than three nodes cannot lose one and go on.
const (
	devNodesMin = 3
	devNodesMax = 9
)

// devOptions are the flags of narad cluster dev.
type devOptions struct {
	nodes    int // 0 = as many as the directory has, else devNodesMin
	dir      string
	basePort int // 0 = the default one, or free ones when that is taken
	logLevel string
}

func clusterDev(io stdio) *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use: "dev", Short: "Run a playground cluster on this machine", Args: cobra.NoArgs,
		Long: "Run several nodes as processes on loopback, until Ctrl-C stops them all.\n\n" +
			"Authentication is off, as in 'narad server start --dev': curl needs no password. Traffic\n" +
			"between the nodes proves a secret that is made up at each start.\n\n" +
			"Data is kept in a scratch directory that is removed at the end. A directory given with\n" +
			"--dir is kept: the same command starts the same cluster again, with more --nodes a larger one.",
		Example: "  narad cluster dev\n  narad cluster dev --nodes 5 --dir ./playground --base-port 9000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags().Changed("nodes")); err != nil {
				return usageError{err}
			}
			return runDevCluster(cmd.Context(), o, io)
		},
	}
	fl := c.Flags()
	fl.IntVar(&o.nodes, "nodes", 0, fmt.Sprintf("how many nodes, %d to %d (default %d, or as many as --dir has)", devNodesMin, devNodesMax, devNodesMin))
	fl.StringVar(&o.dir, "dir", "", "keep the data here")
	fl.IntVar(&o.basePort, "base-port", 0, "API of the first node; each node takes this port and the next (default 7942, or free ports)")
	fl.StringVar(&o.logLevel, "log-level", "warn", "what the nodes log: debug, info, warn or error")
	return c
}

// basePortMax leaves room for the ports of the last node.
const basePortMax = 65535 - 2*devNodesMax

func (o *devOptions) check(nodesGiven bool) error {
	if nodesGiven && (o.nodes < devNodesMin || o.nodes > devNodesMax) {
		return fmt.Errorf("--nodes %d: want %d to %d; 'narad server start --dev' runs one", o.nodes, devNodesMin, devNodesMax)
	}
	if o.basePort < 0 || o.basePort > basePortMax {
		return fmt.Errorf("--base-port %d: want 1 to %d", o.basePort, basePortMax)
	}
	switch o.logLevel {
	case "debug", "info", "warn", "error":
		return nil
	}
	return fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel)
}

// runDevCluster runs the cluster until ctx ends.
func runDevCluster(ctx context.Context, o devOptions, io stdio) (err error) {
	scratch := o.dir == ""
	if scratch {
		if o.dir, err = os.MkdirTemp("", "narad-cluster-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	layout, err := openLayout(o)
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	secret, err := newSecret()
	if err != nil {
		return err
	}
	s := newSupervisor(io.out, o.logLevel == "warn" || o.logLevel == "error")
	defer s.stop(io.err)
	for _, n := range layout.Nodes {
		if err := s.start(n, binary, layout.environment(n, o, secret)); err != nil {
			return fmt.Errorf("start %s: %w", n.ID, err)
		}
	}
	if err := s.awaitReady(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	devClusterBanner(io, s, o.dir, scratch)
	return s.watch(ctx, io.err)
}

// newSecret is what the nodes of one run prove to each other. It is kept nowhere: they
// all start and stop together.
func newSecret() (string, error) {
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("cluster secret: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b[:]), nil
}

// environment is what the process of a node runs with: this one's, without any setting
// of a node in it.
func (l *devLayout) environment(n devNode, o devOptions, secret string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NARAD_") {
			env = append(env, v)
		}
	}
	var peers, initial []string
	for _, p := range l.Nodes[:l.Initial] {
		peers = append(peers, config.Peer{ID: p.ID, RaftAddr: p.raft(), APIAddr: p.api()}.String())
		initial = append(initial, p.ID)
	}
	return append(env,
		"NARAD_NODE_ID="+n.ID,
		"NARAD_DATA_DIR="+filepath.Join(o.dir, n.ID),
		"NARAD_HTTP_ADDR="+n.api(),
		"NARAD_CLUSTER_ADDR="+n.raft(),
		"NARAD_CLUSTER_ADVERTISE_ADDR="+n.raft(),
		"NARAD_CLUSTER_PEERS="+strings.Join(peers, ","),
		"NARAD_CLUSTER_INITIAL_MEMBERS="+strings.Join(initial, ","),
		"NARAD_CLUSTER_SECRET="+secret,
		"NARAD_SECURITY_ENABLED=false",
		"NARAD_SECURITY_ALLOW_INSECURE_CLUSTER=true",
		"NARAD_LOG_FORMAT=text",
		"NARAD_LOG_LEVEL="+o.logLevel,
	)
}

// devClusterBanner says that the cluster is ready, and what to type.
func devClusterBanner(io stdio, s *supervisor, dir string, scratch bool) {
	fmt.Fprintf(io.out, "\nnarad  cluster of %d nodes: auth OFF, bound to loopback only\n\n", len(s.processes))
	for _, p := range s.processes {
		fmt.Fprintf(io.out, "  %s  http://%s  process %d\n", p.node.ID, p.node.api(), p.cmd.Process.Pid)
	}
	first, last := s.processes[0].node, s.processes[len(s.processes)-1].node
	flag := ""
	if "http://"+first.api() != defaultServer {
		flag = " -s http://" + first.api()
	}
	fmt.Fprintf(io.out, `
  narad topic create orders%[1]s
  narad produce orders '{"hello":"world"}'%[1]s
  narad consume orders --wait 5s -s http://%[2]s
  narad cluster members%[1]s

`, flag, last.api())
	if scratch {
		fmt.Fprintf(io.out, "Ctrl-C stops all nodes and removes their data. Kill one (kill -9 %d) and carry on with the others.\n\n", s.processes[0].cmd.Process.Pid)
		return
	}
	fmt.Fprintf(io.out, "Ctrl-C stops all nodes; their data stays in %s.\n\n", dir)
}
