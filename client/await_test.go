package client_test

import (
	"context"
	"log"
	"testing"
	"time"

	"github.com/narad-mq/narad/client"
	"github.com/narad-mq/narad/internal/testutil"
)

func eventually(t testing.TB, cond func() bool, what string) {
	t.Helper()
	testutil.Eventually(t, 20*time.Second, cond, what)
}

// waitFor waits until partition 0 of a topic shows n messages. It is for examples,
// which have no test to fail.
func waitFor(c *client.Client, topic string, n int64) {
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		d, err := c.DescribeTopic(context.Background(), topic)
		if err != nil {
			log.Fatal(err)
		}
		if d.PartitionStats[0].HighWatermark >= n {
			return
		}
	}
	log.Fatalf("%s: %d messages not visible", topic, n)
}
