package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/testutil"
)

var produceAll = model.Grant{Action: model.ActionProduce, Patterns: []string{"*"}}

func TestAUTH3WrongAndUnknown(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	r.refused(t, "ada", "wrong", model.CredentialsInvalid)
	if n := r.runs.count(); n != 1 {
		t.Fatalf("%d bcrypt runs", n)
	}
	for _, name := range []string{"eve", "", "ADA", strings.Repeat("x", 70)} {
		r.refused(t, name, "right", model.CredentialsInvalid)
	}
	if n := r.runs.count(); n != 1 {
		t.Fatalf("an unknown username costs bcrypt: %d runs", n)
	}
	if model.CredentialsInvalid.Error() != "invalid credentials" || model.CredentialsRequired.Error() != "authentication required" {
		t.Fatal("texts")
	}
}

func TestPasswordsNobodyCanHaveCostNothing(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("p", 72)
	r.users.set(t, "ada", long)
	for range 2 * userBurst {
		r.refused(t, "ada", long+"x", model.CredentialsInvalid) // bcrypt would cut it and say yes
		r.refused(t, "ada", "", model.CredentialsInvalid)
	}
	if n := r.runs.count(); n != 0 {
		t.Fatalf("%d bcrypt runs", n)
	}
	r.mustLogin(t, "ada", long)
}

func TestAUTH4RealCost(t *testing.T) {
	users := newReplica()
	a := New(Options{Users: users})
	defer a.Close()
	hash, err := a.Hash(context.Background(), "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := bcrypt.Cost([]byte(hash)); err != nil || cost != 10 {
		t.Fatalf("cost %d, %v", cost, err)
	}
	if err := ValidateHash(hash); err != nil {
		t.Fatal(err)
	}
	users.accounts["ada"] = model.Account{User: model.User{Username: "ada"}, PasswordHash: hash}
	if c, err := a.Authenticate(context.Background(), basic("ada", "s3cret")); err != nil || c.Username() != "ada" {
		t.Fatal(c, err)
	}
	if err := a.Verify(context.Background(), "ada", "s3cret"); err != nil {
		t.Fatal(err)
	}
	if err := a.Verify(context.Background(), "ada", "guess"); err != model.CredentialsInvalid {
		t.Fatal(err)
	}
}

func TestAUTH5CacheAnswersWithoutBcrypt(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right", produceAll)
	first := r.mustLogin(t, "ada", "right")
	reads := r.users.reads
	for range 10 {
		if c := r.mustLogin(t, "ada", "right"); c != first {
			t.Fatal("not the cached caller")
		}
	}
	if r.runs.count() != 1 || r.users.reads != reads {
		t.Fatalf("%d runs, %d more reads", r.runs.count(), r.users.reads-reads)
	}
}

func TestAUTH5ChangesCountFromTheNextRequest(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right", produceAll)
	r.users.set(t, "bob", "bobs")
	if c := r.mustLogin(t, "ada", "right"); c.MayProduce("t") != nil {
		t.Fatal("no grant")
	}
	r.mustLogin(t, "bob", "bobs")

	r.users.set(t, "ada", "") // grants gone, password kept
	if c := r.mustLogin(t, "ada", "right"); c.MayProduce("t") == nil {
		t.Fatal("a revoked grant still works")
	}
	r.mustLogin(t, "bob", "bobs")
	if n := r.runs.count(); n != 2 {
		t.Fatalf("a change of grants costs bcrypt: %d runs", n)
	}

	r.users.set(t, "ada", "other")
	r.refused(t, "ada", "right", model.CredentialsInvalid)
	r.mustLogin(t, "ada", "other")
	r.mustLogin(t, "bob", "bobs")
	if n := r.runs.count(); n != 4 {
		t.Fatalf("%d runs, want one for each password of ada and none for bob", n)
	}

	r.users.remove("ada")
	r.refused(t, "ada", "other", model.CredentialsInvalid)
	r.users.set(t, "ada", "new") // another user of the name
	r.refused(t, "ada", "other", model.CredentialsInvalid)
}

func TestAUTH5ARightCheckOfAnOldPasswordDoesNotOutliveIt(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "old")
	gate := r.runs.hold()
	result := make(chan error, 1)
	go func() { _, err := r.login("ada", "old"); result <- err }()
	testutil.Eventually(t, 5*time.Second, func() bool { return r.runs.count() == 1 }, "the check begins")
	r.users.set(t, "ada", "new")
	close(gate)
	if err := <-result; err != nil {
		t.Fatal(err) // it was right when it was asked
	}
	r.refused(t, "ada", "old", model.CredentialsInvalid)
	r.mustLogin(t, "ada", "new")
}

func TestAUTH6OneRunForEqualCredentials(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	gate := r.runs.hold()
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { _, err := r.Authenticate(ctx, basic("ada", "right")); left <- err }() // starts the check
	testutil.Eventually(t, 5*time.Second, func() bool { return r.runs.count() == 1 }, "the check begins")
	var wg sync.WaitGroup
	errs := make(chan error, 20)
	for range cap(errs) {
		wg.Go(func() { _, err := r.login("ada", "right"); errs <- err })
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("AUTH-11: a client that left got %v", err)
	}
	if r.log.count("store failure") != 0 {
		t.Fatal("a client that left is no store failure")
	}
	close(gate)
	wg.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if n := r.runs.count(); n != 1 {
		t.Fatalf("%d runs", n)
	}
}

func TestAUTH6AbandonedCheckStillFillsTheCache(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	gate := r.runs.hold()
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { _, err := r.Authenticate(ctx, basic("ada", "right")); left <- err }()
	testutil.Eventually(t, 5*time.Second, func() bool { return r.runs.count() == 1 }, "the check begins")
	leave()
	<-left
	close(gate)
	testutil.Eventually(t, 5*time.Second, func() bool { return r.cache.get([]byte("ada")) != nil }, "the check ends")
	r.mustLogin(t, "ada", "right")
	if n := r.runs.count(); n != 1 {
		t.Fatalf("%d runs", n)
	}
}

func TestAUTH8AUTH12UserBucket(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	r.users.set(t, "bob", "bobs")
	for i := range userBurst {
		r.refused(t, "ada", fmt.Sprint("guess", i), model.CredentialsInvalid)
	}
	runs := r.runs.count()
	for range 20 {
		if s := r.throttled429(t, "ada", "right"); s != 12 {
			t.Fatalf("Retry-After %d", s)
		}
	}
	r.clock.Advance(11 * time.Second)
	if s := r.throttled429(t, "ada", "right"); s != 1 {
		t.Fatalf("Retry-After %d", s)
	}
	if r.runs.count() != runs {
		t.Fatal("a throttled attempt costs bcrypt")
	}
	r.mustLogin(t, "bob", "bobs")
	if n := r.log.count(`msg="authentication throttled" username=ada`); n != 1 {
		t.Fatalf("%d log lines in 12 s", n)
	}
	r.clock.Advance(time.Second)
	r.mustLogin(t, "ada", "right") // the attempt that came back; it is right, so it costs nothing
	r.refused(t, "ada", "guess", model.CredentialsInvalid)
	if s := r.throttled429(t, "ada", "guess2"); s != 12 {
		t.Fatalf("Retry-After %d", s)
	}
	r.mustLogin(t, "ada", "right") // cached
	if n := r.log.count("authentication throttled"); n != 2 {
		t.Fatalf("%d log lines in 24 s", n)
	}
}

func TestAUTH8GuessesInFlightCount(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	gate := r.runs.hold()
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 64 {
		wg.Go(func() {
			_, err := r.login("ada", fmt.Sprint("guess", i))
			mu.Lock()
			defer mu.Unlock()
			outcomes[err.Error()]++
		})
	}
	testutil.Eventually(t, 5*time.Second, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return outcomes[model.ErrAuthThrottled.Error()] == 64-userBurst
	}, "all but five are refused before any was checked")
	close(gate)
	wg.Wait()
	if outcomes["invalid credentials"] != userBurst || r.runs.count() != userBurst {
		t.Fatalf("%v, %d runs", outcomes, r.runs.count())
	}
}

// spoil leaves a user with recent failures; it takes n tokens of the node's budget
// (the first attempt pays when it fails).
func (r *rig) spoil(t *testing.T, username string, n int) {
	t.Helper()
	for i := range n {
		r.refused(t, username, fmt.Sprint("spoil", i), model.CredentialsInvalid)
	}
}

func TestAUTH10NodeBudget(t *testing.T) {
	r := newRig(t)
	for i := range 10 {
		r.users.set(t, fmt.Sprint("u", i), "right")
	}
	r.users.set(t, "clean", "right")
	for i := range 6 {
		r.spoil(t, fmt.Sprint("u", i), 5) // 30 of 32
	}
	r.spoil(t, "u6", 1) // 31
	r.spoil(t, "u7", 1) // 32
	r.spoil(t, "u8", 1) // a failed first attempt takes one if any is left
	runs := r.runs.count()
	for range 3 {
		if s := r.throttled429(t, "u6", "right"); s != 1 {
			t.Fatalf("Retry-After %d", s)
		}
	}
	if r.runs.count() != runs {
		t.Fatal("refused with bcrypt")
	}
	if n := r.log.count(`msg="authentication failure budget exhausted"`); n != 1 {
		t.Fatalf("%d log lines", n)
	}
	r.mustLogin(t, "clean", "right") // never refused by the budget
	r.refused(t, "u9", "wrong", model.CredentialsInvalid)

	r.clock.Advance(250 * time.Millisecond) // one token
	r.mustLogin(t, "u6", "right")           // returns what it took
	r.mustLogin(t, "u7", "right")
	r.refused(t, "u8", "wrong", model.CredentialsInvalid) // keeps it
	r.throttled429(t, "u8", "right")
	r.clock.Advance(10 * time.Second)
	for i := range 40 { // 32 + what is left of the users' own buckets
		_, _ = r.login(fmt.Sprint("u", i%6), fmt.Sprint("again", i))
	}
	if n := r.log.count("budget exhausted"); n > 2 {
		t.Fatalf("%d log lines in 10 s", n)
	}
}

func TestAUTH10ABudgetRefusalDoesNotCostTheUser(t *testing.T) {
	r := newRig(t)
	for i := range 8 {
		r.users.set(t, fmt.Sprint("u", i), "right")
		if i < 7 {
			r.spoil(t, fmt.Sprint("u", i), min(5, 32-5*i))
		}
	}
	r.spoil(t, "u7", 1)
	for range 20 {
		r.throttled429(t, "u7", "right")
	}
	r.clock.Advance(time.Second)
	for i := range 4 {
		r.refused(t, "u7", fmt.Sprint("w", i), model.CredentialsInvalid) // 5 in all, as if never refused
	}
}

func TestAUTH9CleanUsernamesFirst(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "spoilt", "right")
	r.spoil(t, "spoilt", 1)
	for i := range 10 {
		r.users.set(t, fmt.Sprint("u", i), "right")
	}
	before := r.runs.count()
	gate := r.runs.hold()
	var wg sync.WaitGroup
	enter := func(username, password string, queued int) {
		wg.Go(func() { _, _ = r.login(username, password) })
		testutil.Eventually(t, 5*time.Second, func() bool {
			r.verifier.mu.Lock()
			defer r.verifier.mu.Unlock()
			return len(r.verifier.inFlight) == queued
		}, "admitted")
	}
	for i := range verifySlots {
		enter(fmt.Sprint("u", i), "right", i+1)
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return r.runs.count() == before+verifySlots }, "the slots are taken")
	enter("spoilt", "suspect1", 5)
	enter("spoilt", "suspect2", 6)
	r.users.set(t, "late", "clean")
	enter("late", "clean", 7)
	for range verifySlots + 3 {
		gate <- struct{}{}
	}
	wg.Wait()
	order := r.runs.begun()[before+verifySlots:]
	if got := strings.Join(order, " "); got != "clean suspect1 suspect2" {
		t.Fatalf("order %s", got)
	}
}

func TestAUTH7SlotsBoundTheRuns(t *testing.T) {
	r := newRig(t)
	const users = 12
	for i := range users {
		r.users.set(t, fmt.Sprint("u", i), "right")
	}
	gate := r.runs.hold()
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() { r.mustLogin(t, fmt.Sprint("u", i), "right") })
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return r.queuedChecks() == users }, "all are admitted")
	if n := r.runs.count(); n > verifySlots {
		t.Fatalf("%d runs at once", n)
	}
	if got := queuedGauge(t, r); got != users {
		t.Fatalf("narad_auth_verify_queued %v", got)
	}
	close(gate)
	wg.Wait()
	if got := queuedGauge(t, r); got != 0 || r.runs.count() != users {
		t.Fatalf("narad_auth_verify_queued %v, %d runs", got, r.runs.count())
	}
}

func TestQueueBound(t *testing.T) {
	r := newRig(t)
	gate := r.runs.hold()
	r.users.set(t, "u", "right")
	hash := r.users.accounts["u"].PasswordHash
	ask := func(i int) error {
		acct := model.Account{User: model.User{Username: fmt.Sprint("u", i)}, PasswordHash: hash}
		gone, leave := context.WithCancel(context.Background())
		leave() // its requester is not what this is about
		_, err := r.check(gone, acct, 1, mac{byte(i), byte(i >> 8)}, []byte("wrong"))
		return err
	}
	for i := range verifySlots + queueMax {
		if err := ask(i); !errors.Is(err, context.Canceled) {
			t.Fatalf("check %d: %v", i, err)
		}
	}
	var e *model.AuthThrottledError
	if err := ask(verifySlots + queueMax); !errors.As(err, &e) || e.RetryAfter != 1 {
		t.Fatalf("past the bound: %v", err)
	}
	if err := ask(7); !errors.Is(err, context.Canceled) {
		t.Fatalf("a check in flight is joined past the bound: %v", err)
	}
	close(gate)
}

func TestBucketsOfOldFailuresAreDropped(t *testing.T) {
	v := newVerifier(newGauge(), func() time.Duration { return 0 })
	for i := range bucketsIdle {
		if v.admit(&check{username: fmt.Sprint("u", i)}, 0) != nil {
			t.Fatal("refused")
		}
	}
	if v.admit(&check{username: "one more"}, userPeriod); len(v.buckets) != 1 || v.sweepAt != bucketsIdle {
		t.Fatalf("%d buckets, next sweep at %d", len(v.buckets), v.sweepAt)
	}
}

func TestCacheBound(t *testing.T) {
	c := newCache()
	for i := range cacheMax - 50 {
		(*c.entries.Load())[fmt.Sprint("u", i)] = newVerified(mac{}, "", 1, nil)
	}
	for i := cacheMax - 50; i < cacheMax+100; i++ {
		c.put(fmt.Sprint("u", i), newVerified(mac{}, "", 1, nil))
	}
	if n := len(*c.entries.Load()); n != cacheMax {
		t.Fatalf("%d entries", n)
	}
	if c.get([]byte(fmt.Sprint("u", cacheMax+99))) == nil {
		t.Fatal("the newest is not there")
	}
	full := *c.entries.Load()
	for name := range full {
		c.put(name, newVerified(mac{}, "", 2, nil)) // known ones push nobody out
		break
	}
	if n := len(*c.entries.Load()); n != cacheMax {
		t.Fatalf("%d entries", n)
	}
	old := newVerified(mac{}, "", 1, nil)
	c.put("x", old)
	c.put("x", newVerified(mac{}, "", 2, nil))
	if c.drop("x", old); c.get([]byte("x")) == nil {
		t.Fatal("dropped the newer entry")
	}
}

func TestAUTH11StoreFailure(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "right")
	broken := errors.New("bbolt: bad page")
	r.users.breakWith(broken)
	for range 3 {
		_, err := r.login("ada", "right")
		if !errors.Is(err, model.ErrAuthUnavailable) || !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
	if n := r.log.count(`level=ERROR msg="authentication store failure" err="bbolt: bad page"`); n != 1 {
		t.Fatalf("%d log lines in one second", n)
	}
	r.users.breakWith(nil)
	r.mustLogin(t, "ada", "right")
}

func TestAUTH11AHashThatIsNoneCostsNobodyAnAttempt(t *testing.T) {
	r := newRig(t)
	r.users.accounts["ada"] = model.Account{User: model.User{Username: "ada"}, PasswordHash: "plain"}
	for range 2 * userBurst {
		if _, err := r.login("ada", "right"); !errors.Is(err, model.ErrAuthUnavailable) {
			t.Fatal(err)
		}
	}
}

func TestNothingSecretIsLogged(t *testing.T) {
	r := newRig(t)
	r.users.set(t, "ada", "hunter2")
	r.spoil(t, "ada", 5)
	r.throttled429(t, "ada", "hunter2")
	r.users.accounts["bad"] = model.Account{User: model.User{Username: "bad"}, PasswordHash: "$2a$04$nonsense"}
	_, _ = r.login("bad", "hunter2")
	for _, secret := range []string{"hunter2", "spoil", "$2a$"} {
		if r.log.count(secret) != 0 {
			t.Fatalf("the log holds %q:\n%s", secret, r.log.b.String())
		}
	}
}

func TestCloseRefusesTheQueueAndWaitsForTheRest(t *testing.T) {
	r := newRig(t)
	const users = 6
	for i := range users {
		r.users.set(t, fmt.Sprint("u", i), "right")
	}
	r.users.set(t, "cached", "right")
	r.mustLogin(t, "cached", "right")
	gate := r.runs.hold()
	errs := make(chan error, users)
	for i := range users {
		go func() { _, err := r.login(fmt.Sprint("u", i), "right"); errs <- err }()
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return r.queuedChecks() == users }, "all are admitted")
	closed := make(chan struct{})
	go func() { defer close(closed); _ = r.Close() }()
	for range users - verifySlots {
		if err := <-errs; !errors.Is(err, model.ErrShuttingDown) {
			t.Fatal(err)
		}
	}
	select {
	case <-closed:
		t.Fatal("closed while checks run")
	default:
	}
	close(gate)
	for range verifySlots {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	<-closed
	r.users.set(t, "new", "right")
	r.refused(t, "new", "right", model.ErrShuttingDown)
	r.mustLogin(t, "cached", "right")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) queuedChecks() int {
	r.verifier.mu.Lock()
	defer r.verifier.mu.Unlock()
	return len(r.verifier.inFlight)
}
