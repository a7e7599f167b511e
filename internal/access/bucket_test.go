package access

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAUTH8BucketBurstAndRefill(t *testing.T) {
	var b bucket
	for i := range userBurst {
		if _, _, ok := b.take(ofUser, 0); !ok {
			t.Fatalf("token %d refused", i)
		}
	}
	if _, wait, ok := b.take(ofUser, 0); ok || wait != 12*time.Second {
		t.Fatalf("sixth token: %v %v", ok, wait)
	}
	if _, wait, ok := b.take(ofUser, 12*time.Second-1); ok || wait != 1 {
		t.Fatalf("just before a token is back: %v %v", ok, wait)
	}
	if _, _, ok := b.take(ofUser, 12*time.Second); !ok {
		t.Fatal("one token is back after 12 s")
	}
	if _, _, ok := b.take(ofUser, 12*time.Second); ok {
		t.Fatal("two tokens are back after 12 s")
	}
	if b.isFull(71*time.Second) || !b.isFull(72*time.Second) {
		t.Fatal("six tokens are back after 72 s")
	}
}

func TestAUTH10NodeBudgetBurstAndRefill(t *testing.T) {
	var b bucket
	for i := range nodeBurst {
		if _, _, ok := b.take(ofNode, time.Hour); !ok {
			t.Fatalf("token %d refused", i)
		}
	}
	if _, wait, ok := b.take(ofNode, time.Hour); ok || wait != 250*time.Millisecond {
		t.Fatal(ok, wait)
	}
	got := 0
	for range 10 {
		if _, _, ok := b.take(ofNode, time.Hour+time.Second); ok {
			got++
		}
	}
	if got != 4 {
		t.Fatalf("%d tokens came back in a second", got)
	}
}

// TestBucketAgainstTokens holds the one-number form against a counter of tokens.
func TestBucketAgainstTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bucket
		const tick = userPeriod / 4
		credit, now := userBurst*4, time.Duration(0) // credit in quarters of a token
		type loan struct{ until time.Duration }
		var loans []loan
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				now += tick
				credit = min(credit+1, userBurst*4)
			case 3:
				if len(loans) == 0 {
					continue
				}
				until := loans[len(loans)-1].until
				loans = loans[:len(loans)-1]
				b.giveBack(ofUser, until, now)
				back := min(max(until-now, 0), userPeriod)
				credit = min(credit+int(back/tick), userBurst*4)
			default:
				until, _, ok := b.take(ofUser, now)
				if ok != (credit >= 4) {
					t.Fatalf("at %v with %d quarters: %v", now, credit, ok)
				}
				if ok {
					credit -= 4
					loans = append(loans, loan{until})
				}
			}
			if b.isFull(now) != (credit == userBurst*4) {
				t.Fatalf("at %v with %d quarters: full is %v", now, credit, b.isFull(now))
			}
		}
	})
}
