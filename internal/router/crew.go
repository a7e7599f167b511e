package router

import (
	"context"
	"sync"
)

// crew is what runs in the background, until it is closed.
type crew struct {
	ctx    context.Context // done once closed
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards closed; nothing is started once it is set
	closed bool
}

func (c *crew) open() { c.ctx, c.cancel = context.WithCancel(context.Background()) }

func (c *crew) stopped() <-chan struct{} { return c.ctx.Done() }

// do runs f with a context that ends with the crew; false when it is closed.
func (c *crew) do(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(func() { f(c.ctx) })
	return true
}

// close ends everything and waits for it.
func (c *crew) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}
