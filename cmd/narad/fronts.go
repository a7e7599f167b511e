package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/narad-mq/narad/internal/config"
	"github.com/narad-mq/narad/internal/httpapi"
)

// fronts are the node's HTTP listeners: the API, and where configured the metrics and
// pprof ports.
type fronts struct {
	log     *slog.Logger
	api     net.Listener
	servers []*http.Server
	failed  chan error // a listener that ended by itself
}

func newFronts(log *slog.Logger) *fronts { return &fronts{log: log, failed: make(chan error, 3)} }

// open binds every listener and serves on it. What was bound before a failure is
// closed by close.
func (f *fronts) open(api *httpapi.API, cfg config.HTTP) error {
	if cfg.MetricsAddr != "" {
		mux := http.NewServeMux()
		mux.Handle("/", api.OpsHandler())
		if cfg.PprofAddr == cfg.MetricsAddr {
			addPprof(mux)
		}
		if _, err := f.listen("http.metrics_addr", cfg.MetricsAddr, opsServer(mux, cfg), 0); err != nil {
			return err
		}
	}
	if cfg.PprofAddr != "" && cfg.PprofAddr != cfg.MetricsAddr {
		mux := http.NewServeMux()
		addPprof(mux)
		if _, err := f.listen("http.pprof_addr", cfg.PprofAddr, opsServer(mux, cfg), 0); err != nil {
			return err
		}
	}
	l, err := f.listen("http.addr", cfg.Addr, httpapi.NewServer(api, cfg), cfg.MaxConnections)
	f.api = l
	return err
}

func (f *fronts) listen(key, addr string, s *http.Server, connections int) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	f.servers = append(f.servers, s)
	go func() {
		if err := s.Serve(httpapi.LimitListener(l, connections)); !errors.Is(err, http.ErrServerClosed) {
			f.failed <- fmt.Errorf("%s: %w", key, err)
		}
	}()
	return l, nil
}

// addr is where the API listens, with the port that was bound.
func (f *fronts) addr() string { return f.api.Addr().String() }

// close drains for at most grace, then cuts what is left.
func (f *fronts) close(grace time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	var errs []error
	for i := len(f.servers) - 1; i >= 0; i-- { // the API first, the probes' port last
		err := f.servers[i].Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			f.log.Warn("requests still ran when the shutdown grace was over; their connections are cut", "grace", grace)
			err = f.servers[i].Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func opsServer(h http.Handler, cfg config.HTTP) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: cfg.IdleTimeout, MaxHeaderBytes: cfg.MaxHeaderBytes}
}

func addPprof(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
