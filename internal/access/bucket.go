package access

import "time"

// Budgets of spec/http-api AUTH-8 and AUTH-10.
const (
	userBurst   = 5
	userPeriod  = 12 * time.Second
	nodeBurst   = 32
	nodePeriod  = time.Second / 4
	bucketsIdle = 1024 // buckets kept before full ones are looked for
)

// bucket is a token bucket, kept as the moment at which it is full again: each token
// taken moves that by one period. Times are since the Authenticator's start, so the
// zero value is a full bucket.
type bucket struct {
	full time.Duration
}

// rate is the size of a bucket and the time one token takes to come back.
type rate struct {
	burst  int
	period time.Duration
}

// The two kinds of bucket.
const (
	ofUser = iota // failures of one username (AUTH-8)
	ofNode        // failures of all of them (AUTH-10)
)

var rates = [...]rate{ofUser: {userBurst, userPeriod}, ofNode: {nodeBurst, nodePeriod}}

// take takes one token. until is what giveBack wants to know; wait is how long the
// bucket stays empty when there is none.
func (b *bucket) take(kind int, now time.Duration) (until, wait time.Duration, ok bool) {
	r := rates[kind]
	next := max(b.full, now) + r.period
	if wait := next - now - time.Duration(r.burst)*r.period; wait > 0 {
		return 0, wait, false
	}
	b.full = next
	return next, 0, true
}

// giveBack returns a token, or the part of it that has not come back by itself.
func (b *bucket) giveBack(kind int, until, now time.Duration) {
	b.full -= min(max(until-now, 0), rates[kind].period)
}

func (b *bucket) isFull(now time.Duration) bool { return b.full <= now }
