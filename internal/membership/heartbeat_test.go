package membership

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
	"github.com/narad-mq/narad/internal/model"
)

// pulseWorld is a pulse, its clock and its log.
type pulseWorld struct {
	*pulse
	clk *clock.Fake
	log *syncBuffer
}

func newPulseWorld(reg prometheus.Registerer) *pulseWorld {
	w := &pulseWorld{clk: clock.NewFake(time.Unix(1_000, 0)), log: &syncBuffer{}}
	w.pulse = newPulse("n0", w.clk, slog.New(slog.NewTextHandler(w.log, nil)), reg)
	return w
}

func (w *pulseWorld) lines(text string) int { return strings.Count(w.log.String(), text) }

var errBeat = errors.New("no way")

// Three failures in a row over 10 s are worth a warning, then one a minute; the first
// success ends it.
func TestHeartbeatFailingLines(t *testing.T) {
	w := newPulseWorld(nil)
	failing := func() int { return w.lines(`level=WARN msg="member heartbeat failing" member=n0`) }
	w.note(errBeat)
	w.clk.Advance(failingFor)
	w.note(errBeat)
	if failing() != 0 {
		t.Error("two failures are worth no line")
	}
	w.note(errBeat)
	if failing() != 1 || w.lines("failures=3") != 1 || w.lines("failing_for=10s") != 1 || w.lines(`err="no way"`) != 1 {
		t.Errorf("want a line at the third:\n%s", w.log)
	}
	w.clk.Advance(failingEvery - 1)
	w.note(errBeat)
	if failing() != 1 {
		t.Error("a line came early")
	}
	w.clk.Advance(1)
	w.note(errBeat)
	if failing() != 2 {
		t.Error("want another after a minute")
	}
	w.note(nil)
	w.note(nil)
	if w.lines(`level=INFO msg="member heartbeat recovered" member=n0 failures=5`) != 1 || w.lines("recovered") != 1 {
		t.Errorf("want one line of the recovery:\n%s", w.log)
	}
	for range 100 { // many failures, in less than 10 s
		w.note(errBeat)
		w.clk.Advance(failingFor/100 - 1)
	}
	w.note(nil)
	if failing() != 2 || w.lines("recovered") != 1 {
		t.Errorf("a short streak is worth no line:\n%s", w.log)
	}
}

// The refusal of a decommissioned id is worth one line at error, not one a minute.
func TestHeartbeatRefusedLine(t *testing.T) {
	w := newPulseWorld(nil)
	for range 5 {
		w.note(fmt.Errorf("leader: %w", model.ErrMemberRemoved))
		w.clk.Advance(failingEvery)
	}
	if w.lines(`level=ERROR msg="member heartbeat refused" member=n0`) != 1 || w.lines("failing") != 0 {
		t.Errorf("want one line:\n%s", w.log)
	}
}

func TestHeartbeatMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newPulseWorld(reg)
	expect := func(failures int, at string) {
		t.Helper()
		want := fmt.Sprintf(`# HELP narad_member_heartbeat_failures Heartbeats of this node that failed in a row; 0 after a success.
# TYPE narad_member_heartbeat_failures gauge
narad_member_heartbeat_failures %d
# HELP narad_member_heartbeat_last_success_timestamp_seconds When this node's last heartbeat was stored; 0 until the first.
# TYPE narad_member_heartbeat_last_success_timestamp_seconds gauge
narad_member_heartbeat_last_success_timestamp_seconds %s
`, failures, at)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	expect(0, "0")
	w.note(errBeat)
	w.note(errBeat)
	expect(2, "0")
	w.note(nil)
	expect(0, "1000")
	w.clk.Advance(time.Second)
	w.note(errBeat)
	expect(1, "1000")
}
