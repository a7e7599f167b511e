package telemetry

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/clock"
)

func gauge(name string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name})
}

// One source hangs, one fails, one panics: the healthy one stays fresh, each failure
// is counted by kind, and the success stamp stands still.
func TestPollerKeepsSourcesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		release := make(chan struct{})
		n := 0.0
		hung, good := gauge("hung"), gauge("good")
		hung.Set(7)
		p := NewPoller("vitals", clock.Real(), Discard(), reg,
			Source{"disk", func() (float64, error) { <-release; return 1, nil }, hung},
			Source{"broken", func() (float64, error) { return 0, errors.New("no") }, gauge("broken")},
			Source{"wild", func() (float64, error) { panic("boom") }, gauge("wild")},
			Source{"good", func() (float64, error) { n++; return n, nil }, good},
		)
		start := testutil.ToFloat64(p.success)
		time.Sleep(3 * pollPeriod) // the bubble's clock
		synctest.Wait()
		if got := testutil.ToFloat64(good); got < 2 {
			t.Errorf("healthy source read %v times, want at least 2", got)
		}
		if got := testutil.ToFloat64(hung); got != 7 {
			t.Errorf("hung source shows %v, want its last value 7", got)
		}
		if got := testutil.ToFloat64(p.success); got != start {
			t.Errorf("success stamp moved from %v to %v while sources fail", start, got)
		}
		for _, kind := range []string{"disk_timeout", "broken", "wild_panic"} {
			if testutil.ToFloat64(p.errors.WithLabelValues("metrics", kind)) == 0 {
				t.Errorf("kind %s was not counted", kind)
			}
		}
		close(release)
		p.Stop()
		synctest.Wait()
	})
}

func TestPollerStampsSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPoller("vitals", clock.Real(), Discard(), nil,
			Source{"good", func() (float64, error) { return 1, nil }, gauge("good")})
		defer p.Stop()
		start := testutil.ToFloat64(p.success)
		time.Sleep(2 * pollPeriod) // the bubble's clock
		synctest.Wait()
		if got := testutil.ToFloat64(p.success); got <= start {
			t.Errorf("success stamp stands at %v", got)
		}
	})
}

func TestRegisterSharesOneSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	Errors(reg).WithLabelValues("a", "x").Inc()
	Errors(reg).WithLabelValues("b", "y").Inc()
	n, err := testutil.GatherAndCount(reg, "narad_errors_total")
	if err != nil || n != 2 {
		t.Fatalf("got %d series (%v), want both in one family", n, err)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(error).Error(), "narad_errors_total") {
			t.Errorf("a clashing description: got panic %v, want one that names the series", r)
		}
	}()
	Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "narad_errors_total", Help: "other"}))
}
