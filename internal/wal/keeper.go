package wal

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rotateBytes is the length from which a segment with nothing undone in it is
// rotated away (spec/storage-and-produce section 14.4).
const rotateBytes = 1 << 20

// keepLoop is the keeper. A timer is armed only while the checkpoint is not synced,
// the free space is low, or something that failed is to be tried again.
func (l *Log) keepLoop() {
	defer l.running.Done()
	timer := l.opt.Clock.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		now := l.opt.Clock.Now()
		again := earliest(l.storeCheckpoint(now), l.retire(now), l.watchSpace(now))
		if !again.IsZero() {
			timer.Reset(again.Sub(l.opt.Clock.Now()))
		}
		select {
		case <-l.signals.keeper:
		case <-timer.C():
		case <-l.signals.stop:
			return
		}
		timer.Stop()
	}
}

// earliest is the first of the given times, zero ones aside.
func earliest(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// retire compacts behind the synced checkpoint and asks for a rotation if that is
// what keeps the active segment from going.
func (l *Log) retire(now time.Time) (again time.Time) {
	if err := l.compact(); err != nil {
		l.opt.Logger.Warn("ingress WAL: a dispatched segment could not be removed", "dir", l.opt.Dir, "err", err)
		return now.Add(retryEvery)
	}
	if l.check.synced == l.next.Load() && l.catalog.activeEnd() > rotateBytes {
		l.signals.rotate.Store(true)
		wake(l.signals.committer)
	}
	return time.Time{}
}

// metrics makes the log's gauges (spec/storage-and-produce section 23).
func (l *Log) metrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "narad_ingress_wal_failed",
			Help: "1 once a write or sync of the ingress WAL failed; produce is refused until restart.",
		}, func() float64 {
			if l.Failed() != nil {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "narad_ingress_wal_bytes",
			Help: "Bytes of the ingress WAL's files, spares included.",
		}, func() float64 { return float64(l.catalog.bytes() + l.spares.bytes()) }),
	}
}

func (l *Log) register() error {
	r := l.opt.Registry
	if r == nil {
		return nil
	}
	for _, c := range l.collectors {
		if err := r.Register(c); err != nil {
			l.unregister()
			return err
		}
	}
	return nil
}

// unregister makes room for the next log of the process; nobody else registers
// these names.
func (l *Log) unregister() {
	if r := l.opt.Registry; r != nil {
		for _, c := range l.collectors {
			r.Unregister(c)
		}
	}
}
