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

// bindTries is how often a port that the system chooses for the API is given up because
// the same one is taken for other nodes.
const bindTries = 16

// open binds every listener and serves on it; bindRPC binds the port for other nodes at
// the address of the API. What was bound before a failure is closed by close.
func (f *fronts) open(api *httpapi.API, cfg config.HTTP, bindRPC func(addr string) error) error {
	if cfg.MetricsAddr != "" {
		mux := http.NewServeMux()
		mux.Handle("/", api.OpsHandler())
		if cfg.PprofAddr == cfg.MetricsAddr {
			addPprof(mux)
		}
		if err := f.listen("http.metrics_addr", cfg.MetricsAddr, opsServer(mux, cfg)); err != nil {
			return err
		}
	}
	if cfg.PprofAddr != "" && cfg.PprofAddr != cfg.MetricsAddr {
		mux := http.NewServeMux()
		addPprof(mux)
		if err := f.listen("http.pprof_addr", cfg.PprofAddr, opsServer(mux, cfg)); err != nil {
			return err
		}
	}
	l, err := f.bindAPI(cfg.Addr, bindRPC)
	if err != nil {
		return err
	}
	f.api = l
	f.serve("http.addr", l, httpapi.NewServer(api, cfg), cfg.MaxConnections)
	return nil
}

// bindAPI binds the API's port, and the same one for other nodes.
func (f *fronts) bindAPI(addr string, bindRPC func(addr string) error) (net.Listener, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("http.addr: %w", err)
	}
	tries := 1
	if port == "0" {
		tries = bindTries
	}
	for try := 1; ; try++ {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("http.addr: %w", err)
		}
		if err = bindRPC(l.Addr().String()); err == nil {
			return l, nil
		}
		if err = errors.Join(err, l.Close()); try == tries {
			return nil, fmt.Errorf("http.addr, for other nodes (UDP): %w", err)
		}
	}
}

func (f *fronts) listen(key, addr string, s *http.Server) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	f.serve(key, l, s, 0)
	return nil
}

func (f *fronts) serve(key string, l net.Listener, s *http.Server, connections int) {
	f.servers = append(f.servers, s)
	go func() {
		if err := s.Serve(httpapi.LimitListener(l, connections)); !errors.Is(err, http.ErrServerClosed) {
			f.failed <- fmt.Errorf("%s: %w", key, err)
		}
	}()
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
