package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

func newGauge() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}) }

func queuedGauge(t *testing.T, r *rig) float64 {
	t.Helper()
	return promtest.ToFloat64(r.verifier.queued)
}

// TestAUTH5FloodOfGuessesDoesNotDelayACachedUser: 64 guessers keep every slot and
// the queue busy with bcrypt runs that never end; the cached user's requests answer
// meanwhile, so they cannot have waited for one.
func TestAUTH5FloodOfGuessesDoesNotDelayACachedUser(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "valid", "right", produceAll)
	r.mustLogin(t, "valid", "right")
	for i := range 64 {
		r.users.set(t, fmt.Sprint("victim", i%16), "right")
	}
	r.mustLogin(t, "valid", "right")
	cached := r.runs.count()
	gate := r.runs.hold()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 64 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := r.Authenticate(ctx, basic(fmt.Sprint("victim", i%16), fmt.Sprint(i, "-", n)))
				if errors.Is(err, model.ErrAuthThrottled) {
					refused.Add(1)
				}
				if err == nil {
					t.Error("a guess was right")
				}
			}
		})
		wg.Go(func() { _, _ = r.Authenticate(ctx, basic("valid", fmt.Sprint("guess", i))) }) // at the valid user too
	}
	testutil.Eventually(t, 10*time.Second, func() bool {
		return r.runs.count()-cached == verifySlots && refused.Load() > 1000
	}, "every slot is held and the budgets refuse")
	for range 1000 {
		if c := r.mustLogin(t, "valid", "right"); c.MayProduce("t") != nil {
			t.Fatal("not the valid user")
		}
	}
	if n := r.runs.count() - cached; n != verifySlots {
		t.Fatalf("%d runs: one ended, so the flood proves nothing", n)
	}
	stop()
	close(gate)
	wg.Wait()
}

// TestRandomTraffic mixes right and wrong logins with changes of users from many
// goroutines, and holds every answer against what may be true at its time.
func TestRandomTraffic(t *testing.T) {
	r := newRig(t)
	const users = 6
	for i := range users {
		r.users.set(t, fmt.Sprint("u", i), "right")
	}
	deadline := time.Now().Add(500 * time.Millisecond)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := 0; time.Now().Before(deadline); n++ {
				name, password := fmt.Sprint("u", (n*7+w)%users), "right"
				if (n+w)%5 == 0 {
					password = fmt.Sprint("wrong", n, w)
				}
				c, err := r.login(name, password)
				switch {
				case err == nil && (password != "right" || c.Username() != name):
					t.Errorf("%s let in with %s as %s", name, password, c.Username())
				case err == nil, errors.Is(err, model.ErrAuthThrottled):
				case errors.Is(err, model.CredentialsInvalid) && password == "right":
					t.Errorf("%s refused with the right password", name)
				case !errors.Is(err, model.CredentialsInvalid):
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wg.Go(func() {
		for n := 0; time.Now().Before(deadline); n++ {
			r.users.set(t, fmt.Sprint("u", n%users), "", produceAll)
			r.clock.Advance(time.Second)
		}
	})
	wg.Wait()
	if n := r.queuedChecks(); n != 0 || queuedGauge(t, r) != 0 || r.verifier.running != 0 {
		t.Fatalf("%d checks in flight, gauge %v, %d running after all answered", n, queuedGauge(t, r), r.verifier.running)
	}
}
