package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
)

// Pace of the poller (spec/metrics section 2).
const (
	pollPeriod  = 5 * time.Second
	pollTimeout = 2 * time.Second // what one source gets to answer
)

// Source is something that has to be asked for a value and may hang, such as a file
// system.
type Source struct {
	Name string // label of its failures
	Read func() (float64, error)
	Into prometheus.Gauge
}

// Poller reads sources every pollPeriod, each with at most one read in flight. A
// source that is late, fails or panics keeps its last value, counts in
// narad_errors_total{component="metrics"} with kind <name>, <name>_timeout or
// <name>_panic, is logged once until it answers again, and holds back
// narad_poller_last_success_timestamp_seconds.
type Poller struct {
	clk     clock.Clock
	log     *slog.Logger
	errors  *prometheus.CounterVec
	success prometheus.Gauge
	sources []*polled
	stop    chan struct{}
	done    sync.WaitGroup // the loop; a read that hangs is left behind
}

type polled struct {
	Source
	busy    chan struct{} // holds a token while no read is in flight
	failing bool          // owned by the loop
}

// errSourceLate marks a source that did not answer in time.
var errSourceLate = errors.New("no answer in time")

// errSourcePanic marks a source that panicked.
var errSourcePanic = errors.New("panic")

// NewPoller starts polling; loop is the label of its success stamp. Stop ends it.
func NewPoller(loop string, clk clock.Clock, log *slog.Logger, reg prometheus.Registerer, sources ...Source) *Poller {
	vec := Register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "narad_poller_last_success_timestamp_seconds",
		Help: "When a metrics loop last read all of its sources; poller start until then.",
	}, []string{"loop"}))
	p := &Poller{clk: clk, log: log, errors: Errors(reg), success: vec.WithLabelValues(loop), stop: make(chan struct{})}
	for _, s := range sources {
		ps := &polled{Source: s, busy: make(chan struct{}, 1)}
		ps.busy <- struct{}{}
		p.sources = append(p.sources, ps)
	}
	p.success.Set(float64(clk.Now().Unix()))
	p.done.Go(p.run)
	return p
}

// Stop ends the polling and waits for the loop.
func (p *Poller) Stop() {
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.done.Wait()
}

func (p *Poller) run() {
	timer := p.clk.NewTimer(pollPeriod)
	defer timer.Stop()
	for {
		p.pass()
		timer.Reset(pollPeriod)
		select {
		case <-timer.C():
		case <-p.stop:
			return
		}
	}
}

// pass asks every source once.
func (p *Poller) pass() {
	ok := true
	for _, s := range p.sources {
		err := p.ask(s)
		if err == nil {
			s.failing = false
			continue
		}
		ok = false
		kind := s.Name
		switch {
		case errors.Is(err, errSourceLate):
			kind += "_timeout"
		case errors.Is(err, errSourcePanic):
			kind += "_panic"
		}
		p.errors.WithLabelValues("metrics", kind).Inc()
		if !s.failing {
			s.failing = true
			p.log.LogAttrs(context.Background(), slog.LevelWarn, "metrics source failed; its series keep their last value",
				slog.String("source_name", s.Name), slog.Any("err", err))
		}
	}
	if ok {
		p.success.Set(float64(p.clk.Now().Unix()))
	}
}

// ask reads one source on a goroutine of its own, so that one that hangs stops
// nothing but itself; until it returns it is not asked again.
func (p *Poller) ask(s *polled) error {
	select {
	case <-s.busy:
	default:
		return errSourceLate
	}
	result := make(chan error, 1)
	go func() {
		defer func() { s.busy <- struct{}{} }()
		result <- read(s.Source)
	}()
	timer := p.clk.NewTimer(pollTimeout)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C():
		return errSourceLate
	case <-p.stop:
		return nil
	}
}

func read(s Source) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errSourcePanic, r)
		}
	}()
	v, err := s.Read()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Name, err)
	}
	s.Into.Set(v)
	return nil
}
