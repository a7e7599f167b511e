package topics

import (
	"context"
	"fmt"
	"sync"

	"github.com/narad-mq/narad/internal/model"
)

// nameLocks serialises the changes of each name. A name takes room only while
// somebody holds or awaits its lock.
type nameLocks struct {
	mu   sync.Mutex // guards held
	held map[string]*nameLock
}

type nameLock struct {
	users int           // holding or waiting; guarded by nameLocks.mu
	slot  chan struct{} // capacity 1, full while held
}

func newNameLocks() *nameLocks { return &nameLocks{held: map[string]*nameLock{}} }

// lock waits for the name's lock, or for ctx.
func (l *nameLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	n := l.held[name]
	if n == nil {
		n = &nameLock{slot: make(chan struct{}, 1)}
		l.held[name] = n
	}
	n.users++
	l.mu.Unlock()
	select {
	case n.slot <- struct{}{}:
		return func() { <-n.slot; l.leave(name, n) }, nil
	case <-ctx.Done():
		l.leave(name, n)
		return nil, fmt.Errorf("%w: waiting for another change of %q: %w", model.ErrUnavailable, name, ctx.Err())
	}
}

// lockBoth takes the locks of two names, in one order for everybody; the second may be
// "", or the first.
func (l *nameLocks) lockBoth(ctx context.Context, a, b string) (unlock func(), err error) {
	if b == "" || a == b {
		return l.lock(ctx, a)
	}
	first, err := l.lock(ctx, min(a, b))
	if err != nil {
		return nil, err
	}
	second, err := l.lock(ctx, max(a, b))
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

func (l *nameLocks) leave(name string, n *nameLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n.users--; n.users == 0 {
		delete(l.held, name)
	}
}
