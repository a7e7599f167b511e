package client_test

import (
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/testutil"
)

func eventually(t testing.TB, cond func() bool, what string) {
	t.Helper()
	testutil.Eventually(t, 20*time.Second, cond, what)
}
