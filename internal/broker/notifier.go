package broker

import (
	"context"
	"sync"
	"time"
)

// notifier sends announcements outside the pump and ends the holds whose time is over. It
// holds no timer and runs no worker while no record is announced.
type notifier struct {
	b      *Broker
	to     Notifier
	ctx    context.Context
	cancel context.CancelFunc
	poke   chan struct{} // one slot: due is no longer empty
	wg     sync.WaitGroup

	mu      sync.Mutex // guards all below
	queue   []*hold    // to be announced, oldest first
	due     []*hold    // by end: all last equally long
	workers int
	closed  bool
}

func newNotifier(b *Broker, to Notifier) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	return &notifier{b: b, to: to, ctx: ctx, cancel: cancel, poke: make(chan struct{}, 1)}
}

// announce makes the hold of a fired token and has its node told. nil when too many wait
// to be told: the token is spent, and its node comes back with the next.
func (n *notifier) announce(t *topic, tk *token) *hold {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || len(n.queue) >= announceQueueMax {
		return nil
	}
	h := &hold{topic: t, node: tk.node, addr: tk.addr, till: n.b.now() + int64(holdTime)}
	n.queue = append(n.queue, h)
	n.due = append(n.due, h)
	if n.workers < announceMax {
		n.workers++
		n.wg.Go(n.work)
	}
	if len(n.due) == 1 {
		select {
		case n.poke <- struct{}{}:
		default:
		}
	}
	return h
}

// work sends announcements until none is left.
func (n *notifier) work() {
	for h := n.next(); h != nil; h = n.next() {
		left := time.Duration(h.till - n.b.now())
		if left <= 0 {
			continue // waited too long: the hold has ended or is about to
		}
		ctx, cancel := context.WithTimeout(n.ctx, left)
		claim, err := n.to.NotifyToken(ctx, h.addr, h.topic.name)
		cancel()
		if err != nil || !claim {
			n.end(h)
		}
	}
}

func (n *notifier) next() *hold {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 || n.closed {
		n.workers--
		n.queue = nil
		return nil
	}
	h := n.queue[0]
	n.queue = n.queue[1:]
	return h
}

// end ends exactly this hold, if it has not ended.
func (n *notifier) end(h *hold) {
	if h.topic.waiters.endHold(func(x *hold) bool { return x == h }) {
		n.b.pump.kick(h.topic)
	}
}

// run ends the holds whose time is over.
func (n *notifier) run() {
	for {
		h := n.first()
		if h == nil {
			select {
			case <-n.poke:
				continue
			case <-n.ctx.Done():
				return
			}
		}
		if left := time.Duration(h.till - n.b.now()); left > 0 {
			timer := n.b.opts.Clock.NewTimer(left)
			select {
			case <-timer.C():
			case <-n.ctx.Done():
				timer.Stop()
				return
			}
			continue
		}
		n.mu.Lock()
		n.due = n.due[1:]
		n.mu.Unlock()
		n.end(h)
	}
}

func (n *notifier) first() *hold {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.due) == 0 {
		n.due = nil
		return nil
	}
	return n.due[0]
}

// close stops announcing; holds that are out stay until their claims or for good.
func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.wg.Wait()
}
