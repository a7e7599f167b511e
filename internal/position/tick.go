package position

import (
	"errors"
	"slices"
	"time"
)

// step is one tick: write what is dirty, sync whose turn it is, level what has
// trailed long enough. It returns when to tick next; more is false when nothing
// waits for a tick.
func (c *Committer) step() (wait time.Duration, more bool) {
	start := c.opts.Clock.Now()
	c.work.primed, c.work.handled = false, 0
	c.takeQueue(false)
	for _, t := range c.work.queue {
		c.retry(t, t.write())
	}
	c.syncDue(start)
	c.levelDue(start)

	now := c.opts.Clock.Now()
	c.report(now, now.Sub(start))
	return c.nextTick(start, now)
}

// retry queues t again after a failure that may pass.
func (c *Committer) retry(t *Tracked, err error) {
	if err == nil || errors.Is(err, errGone) {
		return
	}
	c.limit.Warn(c.opts.Logger, "retry", "consumer offset commit failed; it is tried again at the next tick",
		"topic", t.key.Topic, "partition", t.key.Partition, "err", err)
	t.Dirty()
}

// syncDue syncs the partitions whose turn this tick is, and those that have waited
// a whole interval whatever their turn.
func (c *Committer) syncDue(now time.Time) {
	turn := int64(now.Sub(c.epoch)/c.tick) % c.turns
	c.work.unsynced = slices.DeleteFunc(c.work.unsynced, func(t *Tracked) bool {
		since, waiting := t.waiting()
		if waiting && (t.turn == turn || now.Sub(since) >= c.opts.Interval) {
			c.retry(t, t.sync())
			_, waiting = t.waiting()
		}
		t.queued.unsynced = waiting
		return !waiting
	})
}

// levelDue levels the partitions whose consumer.offset has trailed for
// LevelInterval. One that fails goes to the end of the line.
func (c *Committer) levelDue(now time.Time) {
	line := c.work.levels
	due := 0
	for due < len(line) && now.Sub(line[due].queued.levelSince) >= LevelInterval {
		due++
	}
	again := slices.Clone(line[:due])
	c.work.levels = slices.Delete(line, 0, due)
	for _, t := range again {
		err := t.sync() // a quiet partition has nothing to sync; a busy one is written out with it
		if err == nil {
			err = t.level()
		}
		t.queued.level = false
		if err != nil && !errors.Is(err, errGone) {
			c.retry(t, err)
			c.trail(t, now)
		}
	}
}

// trail notes that t's consumer.offset is behind, since now unless noted before.
func (c *Committer) trail(t *Tracked, now time.Time) {
	if !t.queued.level {
		t.queued.level, t.queued.levelSince = true, now
		c.work.levels = append(c.work.levels, t)
	}
}

// report logs a committer that cannot keep its cadences.
func (c *Committer) report(now time.Time, took time.Duration) {
	if took > c.tick && !c.work.primed {
		c.limit.Warn(c.opts.Logger, "slow",
			"consumer offset commits cannot keep to their interval: persisted offsets lag acks by about the flush time",
			"partitions", c.work.handled, "flush_took", took, "interval", c.tick)
	}
	late, oldest := 0, time.Duration(0)
	for _, t := range c.work.unsynced {
		if since, waiting := t.waiting(); waiting && now.Sub(since) > 2*c.opts.Interval {
			late++
			oldest = max(oldest, now.Sub(since))
		}
	}
	if late > 0 {
		c.limit.Warn(c.opts.Logger, "late",
			"consumer offsets wait longer than their durability interval for a device flush: a power loss would redeliver more acks than it promises",
			"partitions", late, "oldest", oldest, "durability_interval", c.opts.Interval)
	}
}

// nextTick is a tick after start while anything is dirty or unsynced, at once if
// this one took longer, and otherwise when the next partition is to be levelled.
func (c *Committer) nextTick(start, now time.Time) (wait time.Duration, more bool) {
	c.mu.Lock()
	dirty := len(c.shared.queue) > 0
	c.mu.Unlock()
	switch {
	case dirty || len(c.work.unsynced) > 0:
		return max(0, start.Add(c.tick).Sub(now)), true
	case len(c.work.levels) > 0:
		return max(0, c.work.levels[0].queued.levelSince.Add(LevelInterval).Sub(now)), true
	}
	return 0, false
}
