package membership

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/telemetry"
)

// pulse is how this node's heartbeats fare. Its owner is one goroutine.
type pulse struct {
	member      string
	clock       clock.Clock
	log         *slog.Logger
	failures    prometheus.Gauge
	lastSuccess prometheus.Gauge

	failed  int       // in a row
	since   time.Time // the first of them
	lineAt  time.Time // last line that they fail, zero = none of this streak
	refused bool      // the line that the id was decommissioned is written
	beats   bool      // one has arrived
}

func newPulse(member string, c clock.Clock, log *slog.Logger, reg prometheus.Registerer) *pulse {
	return &pulse{
		member: member, clock: c, log: log,
		failures: telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "narad_member_heartbeat_failures", Help: "Heartbeats of this node that failed in a row; 0 after a success.",
		})),
		lastSuccess: telemetry.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "narad_member_heartbeat_last_success_timestamp_seconds", Help: "When this node's last heartbeat was stored; 0 until the first.",
		})),
	}
}

// note takes in the outcome of a heartbeat.
func (p *pulse) note(err error) {
	now := p.clock.Now()
	if err == nil {
		if !p.lineAt.IsZero() {
			p.log.Info("member heartbeat recovered", "member", p.member, "failures", p.failed, "failing_for", now.Sub(p.since))
		}
		p.failed, p.lineAt, p.refused, p.beats = 0, time.Time{}, false, true
		p.failures.Set(0)
		p.lastSuccess.Set(float64(now.UnixMilli()) / 1000)
		return
	}
	if p.failed++; p.failed == 1 {
		p.since = now
	}
	p.failures.Set(float64(p.failed))
	p.log.Debug("member heartbeat failed", "member", p.member, "failures", p.failed, "err", err)
	lasted := now.Sub(p.since)
	switch {
	case errors.Is(err, model.ErrMemberRemoved):
		if !p.refused {
			p.refused = true
			p.log.Error("member heartbeat refused", "member", p.member, "err", err)
		}
	case p.failed >= failingBeats && lasted >= failingFor && (p.lineAt.IsZero() || now.Sub(p.lineAt) >= failingEvery):
		p.lineAt = now
		p.log.Warn("member heartbeat failing", "member", p.member, "failures", p.failed, "since", p.since, "failing_for", lasted, "err", err)
	}
}

// beat sends heartbeats until the node stops.
func (m *Membership) beat() {
	m.every(func() time.Duration {
		ctx, cancel := context.WithTimeout(m.ctx, beatTimeout)
		defer cancel()
		if err := m.store.Heartbeat(ctx); m.ctx.Err() == nil {
			m.pulse.note(err)
		}
		if !m.pulse.beats {
			return m.pace.beatFirst
		}
		return m.pace.beat
	})
}
