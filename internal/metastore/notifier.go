package metastore

import (
	"maps"
	"slices"
	"sync"
)

// notifier hands the names of changed topics to subscribers on one goroutine. A
// name that changes again before it was handed over is handed over once, so what
// waits is bounded by the number of topics, however slow a subscriber is.
type notifier struct {
	mu      sync.Mutex // guards all below
	queue   []string   // in the order of their first change
	queued  map[string]struct{}
	subs    map[int]func(name string)
	nextSub int
	wake    chan struct{} // capacity 1
}

func newNotifier() *notifier {
	return &notifier{queued: map[string]struct{}{}, subs: map[int]func(string){}, wake: make(chan struct{}, 1)}
}

func (n *notifier) push(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.subs) == 0 {
		return
	}
	for _, name := range names {
		if _, ok := n.queued[name]; !ok {
			n.queued[name] = struct{}{}
			n.queue = append(n.queue, name)
		}
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// subscribe returns the function that ends the subscription; a call already begun
// may still be running when it returns.
func (n *notifier) subscribe(f func(name string)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := n.nextSub
	n.nextSub++
	n.subs[id] = f
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs, id)
	}
}

// take empties the queue.
func (n *notifier) take() (names []string, subs []func(string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names, n.queue = n.queue, nil
	clear(n.queued)
	for _, id := range slices.Sorted(maps.Keys(n.subs)) {
		subs = append(subs, n.subs[id])
	}
	return names, subs
}

// run hands names over until quit closes.
func (n *notifier) run(quit <-chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-n.wake:
		}
		names, subs := n.take()
		for _, name := range names {
			for _, f := range subs {
				f(name)
			}
		}
	}
}
