package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/telemetry"
)

// configBytesMax bounds the file --config names.
const configBytesMax = 1 << 20

// serveFlag is a flag of narad serve and the key it sets.
type serveFlag struct {
	name, key, help string
}

func serveFlags() []serveFlag {
	return []serveFlag{
		{"addr", "http.addr", "API listen address, host:port"},
		{"node-id", "cluster.node_id", "this node's id; stable across restarts"},
		{"data-dir", "storage.data_dir", "where everything durable is kept"},
		{"log-level", "log.level", "debug, info, warn or error"},
		{"log-format", "log.format", "json or text"},
		{"pprof-addr", "http.pprof_addr", "serve net/http/pprof here (unset: not at all)"},
	}
}

func serveCommand(io stdio) *cobra.Command {
	var file string
	var port, clusterPort int
	c := &cobra.Command{
		Use: "serve", Short: "Run a node", Args: cobra.NoArgs,
		Long: "Run a node in the foreground until SIGTERM or SIGINT.\n\n" +
			"Settings: built-in default, then the JSON file of --config, then NARAD_* variables, then flags.",
		Example: "  NARAD_CLUSTER_ADDR=127.0.0.1:7943 narad serve --data-dir /var/lib/narad",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fl := cmd.Flags()
			if fl.Changed("addr") && fl.Changed("port") {
				return usageError{errors.New("--addr and --port exclude each other")}
			}
			content, err := readConfig(file)
			if err != nil {
				return err
			}
			cfg, err := config.Load(content, os.Getenv)
			if err != nil {
				return err
			}
			for _, f := range serveFlags() {
				if !fl.Changed(f.name) {
					continue
				}
				v, err := fl.GetString(f.name)
				if err == nil {
					err = cfg.Set(f.key, v)
				}
				if err != nil {
					return err
				}
			}
			if fl.Changed("port") {
				cfg.HTTP.Addr = ":" + strconv.Itoa(port)
			}
			if fl.Changed("cluster-port") {
				cfg.Cluster.Addr = ":" + strconv.Itoa(clusterPort)
			}
			return serve(cmd.Context(), cfg, io)
		},
	}
	fl := c.Flags()
	fl.StringVar(&file, "config", "", "JSON file to read")
	fl.IntVar(&port, "port", 0, "API port on every address; excludes --addr")
	fl.IntVar(&clusterPort, "cluster-port", 0, "Raft port on every address")
	for _, f := range serveFlags() {
		fl.String(f.name, "", f.help)
	}
	return c
}

func readConfig(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, configBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return b, nil
}

func serverCommand(r *remote) *cobra.Command {
	io := r.stdio
	var dev bool
	var port int
	var dataDir string
	start := &cobra.Command{
		Use: "start", Short: "Run a node; with --dev a local playground", Args: cobra.NoArgs,
		Long: "Without --dev: narad serve with this port and data directory.\n" +
			"With --dev: the API on 127.0.0.1 only, no authentication, data in ~/.narad/data, text logs.",
		Example: "  narad server start --dev",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(nil, os.Getenv)
			if err != nil {
				return err
			}
			if dev {
				if err := devConfig(&cfg, port, dataDir, os.Getenv); err != nil {
					return err
				}
				devBanner(io.out, cfg.HTTP.Addr)
			} else if cmd.Flags().Changed("port") {
				cfg.HTTP.Addr = ":" + strconv.Itoa(port)
			}
			if dataDir != "" {
				cfg.Storage.DataDir = dataDir
			}
			return serve(cmd.Context(), cfg, io)
		},
	}
	start.Flags().BoolVar(&dev, "dev", false, "local playground: loopback only, authentication off")
	start.Flags().IntVar(&port, "port", 7942, "API port")
	start.Flags().StringVar(&dataDir, "data-dir", "", "where everything durable is kept")
	return group("server", "Run a node, or look at what one holds", start, serverReport(r))
}

// devConfig turns cfg into the playground of spec/operations section 8.3.
func devConfig(cfg *config.Config, port int, dataDir string, getenv func(string) string) error {
	cfg.HTTP.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cfg.Security.Enabled = false
	cfg.Log.Format = "text"
	if getenv("NARAD_NODE_ID") == "" {
		cfg.Cluster.NodeID = "dev" // a laptop's host name changes with its network; a node's id must not
	}
	if getenv("NARAD_CLUSTER_ADDR") == "" {
		cfg.Cluster.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))
	}
	if dataDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("no home directory for the data: %w; give --data-dir", err)
		}
		cfg.Storage.DataDir = filepath.Join(home, ".narad", "data")
	}
	return nil
}

func devBanner(w io.Writer, addr string) {
	fmt.Fprintf(w, `narad  dev mode: auth OFF, bound to loopback only

  curl -X POST %[1]s/v1/topics -H 'Content-Type: application/json' -d '{"name":"orders"}'
  curl -X POST %[1]s/v1/topics/orders/produce -H 'Content-Type: application/json' -d '{"hello":"world"}'
  curl '%[1]s/v1/topics/orders/consume?wait=5s'

`, "http://"+addr)
}

// newLogger makes the node's logger on standard output.
func newLogger(cfg config.Log, out io.Writer) (*slog.Logger, error) {
	return telemetry.NewLogger(out, cfg.Level, cfg.Format)
}
