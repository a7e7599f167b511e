package router

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/narad-mq/narad/internal/peer"
)

// Cadences of delivery tokens (spec/consume-and-delivery sections 7 and 20).
const (
	keeperEvery   = 500 * time.Millisecond // every owner of a topic with parked consumers holds a token of ours
	renewAfter    = 5 * time.Second        // a registration is sent again after so long
	shareWindow   = 250 * time.Millisecond // a consumer that parks so soon after shares a registration
	tokenGrace    = 250 * time.Millisecond // a token outlives the wait by so much
	safetyEvery   = 2 * time.Second        // a node without partitions of the topic probes its owners
	fallbackMin   = 100 * time.Millisecond // first pause of probing where tokens do not work
	fallbackMax   = time.Second            // last pause
	refusedFor    = 2 * time.Minute        // an owner that refused a registration is not sent one
	tokenFrameMax = 1024                   // tokens of one registration
	sendingMax    = 4                      // registrations under way to one owner
)

// registry is what this node's parked consumers need from other owners: for each topic one
// token at each owner, shared by all of them. A consumer costs nothing here but its place
// in a count; the keeper sleeps while nobody is parked.
type registry struct {
	poke chan struct{} // one slot: a topic is due

	mu      sync.Mutex // guards all below
	topics  map[string]*waiting
	dirty   map[string]struct{}  // topics to look at before the keeper's next round
	busy    map[string]int       // registrations under way, by owner
	refused map[string]time.Time // owners without tokens, until
	round   time.Time            // when the keeper next looks at all topics for tokens
	early   time.Time            // when it next sends consumers of some topic to the owners
}

// waiting is a topic with parked consumers, or one that had some a moment ago.
type waiting struct {
	n     int       // consumers parked
	last  time.Time // when the last one came
	until time.Time // when the last of their waits is over
	sent  map[string]sent

	probe time.Time     // when the next of them is sent to all owners
	pause time.Duration // between two such, where tokens do not work
}

// sent is a registration at one owner, from before it was sent until the owner sends word.
type sent struct{ at, till time.Time }

func newRegistry() registry {
	return registry{
		poke:   make(chan struct{}, 1),
		topics: make(map[string]*waiting), dirty: make(map[string]struct{}),
		busy: make(map[string]int), refused: make(map[string]time.Time),
	}
}

// Park notes a consumer, which every owner has been asked for: broker.Elsewhere.
func (g *gateway) Park(topic string, until time.Time) {
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.topics[topic]
	asleep := len(g.topics) == 0
	if w == nil {
		w = &waiting{sent: make(map[string]sent)}
		g.topics[topic] = w
	}
	if w.n == 0 {
		w.until, w.pause = until, 0
		w.probe = now.Add(safetyEvery)
		if g.tokenless(topic, now) {
			w.probe = now.Add(g.slower(w))
		}
	}
	w.n++
	w.last = now
	if until.After(w.until) {
		w.until = until
	}
	lacks := func(o Target) bool { return g.lacks(w, o, now) }
	if asleep || w.pause > 0 || slices.ContainsFunc(g.owners(topic), lacks) {
		g.soon(topic)
	}
}

// Leave notes that a consumer no longer waits. Tokens are not taken back: they lapse, or
// cost one word that is passed on.
func (g *gateway) Leave(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.topics[topic]; w != nil && w.n > 0 {
		w.n--
	}
}

// renew has the tokens of a topic looked after now, if somebody else waits for it.
func (g *gateway) renew(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w := g.topics[topic]; w != nil && w.n > 1 { // one of them is being served
		g.soon(topic)
	}
}

// soon has the keeper look at a topic without waiting for its round. Caller holds mu.
func (g *gateway) soon(topic string) {
	g.dirty[topic] = struct{}{}
	select {
	case g.poke <- struct{}{}:
	default:
	}
}

// notified takes an owner's word. The token is spent, whoever it finds.
func (g *gateway) notified(topic, owner string) bool {
	g.mu.Lock()
	if w := g.topics[topic]; w != nil {
		delete(w.sent, owner)
	}
	g.mu.Unlock()
	return g.local.SendWord(topic, owner)
}

// run is the keeper. It wakes twice a second while somebody is parked, and sooner when a
// consumer parks or where tokens do not work.
func (g *gateway) run() {
	for {
		wait, some := g.keep()
		if !some {
			select {
			case <-g.poke:
				continue
			case <-g.crew.stopped():
				return
			}
		}
		timer := g.clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-g.poke:
		case <-g.crew.stopped():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// keep does what is due and answers how long nothing more is; some is false when no topic
// needs a keeper.
func (g *gateway) keep() (wait time.Duration, some bool) {
	now := g.clock.Now()
	todo := make(map[string][]peer.Token) // by owner
	g.mu.Lock()
	words := g.look(now, todo)
	for owner := range todo {
		g.busy[owner]++
	}
	wait, some = max(earlier(g.round, g.early).Sub(now), time.Millisecond), len(g.topics) > 0
	g.mu.Unlock()
	for owner, tokens := range todo {
		g.crew.do(func(ctx context.Context) { g.register(ctx, owner, tokens) })
	}
	for _, topic := range words {
		g.local.SendWord(topic, "")
	}
	return wait, some
}

// look adds to todo the tokens to be sent, by owner, and answers the topics of which a
// consumer is to probe. Between rounds it looks only at topics that ask for it. Caller
// holds mu.
func (g *gateway) look(now time.Time, todo map[string][]peer.Token) (words []string) {
	dirty := g.dirty
	g.dirty = make(map[string]struct{})
	round := !now.Before(g.round)
	if !round && now.Before(g.early) {
		for topic := range dirty {
			if w := g.topics[topic]; w != nil && w.n > 0 {
				g.due(topic, w, now, todo)
				g.foresee(w)
			}
		}
		return nil
	}
	if round {
		g.round = now.Add(keeperEvery)
	}
	g.early = now.Add(safetyEvery)
	for topic, w := range g.topics {
		if round && w.over(now) {
			delete(g.topics, topic)
		}
		if w.n == 0 {
			continue
		}
		if _, asks := dirty[topic]; asks || round {
			g.due(topic, w, now, todo)
		}
		soon := round && w.pause == 0 && w.probe.Before(g.round) // rather now than late
		if (soon || !now.Before(w.probe)) && g.reprobes(topic, w, now) {
			words = append(words, topic)
		}
		g.foresee(w)
	}
	return words
}

// foresee has the keeper wake for the next probe of a topic where tokens do not work; for
// any other its rounds are enough. Caller holds mu.
func (g *gateway) foresee(w *waiting) {
	if w.pause > 0 {
		g.early = earlier(g.early, w.probe)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// over reports whether nobody is parked and no registration can be shared any more.
func (w *waiting) over(now time.Time) bool {
	if w.n > 0 {
		return false
	}
	for _, s := range w.sent {
		if now.Sub(s.at) < shareWindow {
			return false
		}
	}
	return true
}

// due adds to todo the tokens that owners of topic lack, and notes them as sent: word of an
// owner can be here before its answer. Caller holds mu.
func (g *gateway) due(topic string, w *waiting, now time.Time, todo map[string][]peer.Token) {
	if !w.until.After(now) || g.table.member(g.node).Addr == "" {
		return
	}
	for _, o := range g.owners(topic) {
		if !g.lacks(w, o, now) {
			continue
		}
		if g.busy[o.ID] >= sendingMax {
			g.dirty[topic] = struct{}{} // at the end of one of them
			continue
		}
		w.sent[o.ID] = sent{at: now, till: w.until.Add(tokenGrace)}
		todo[o.ID] = append(todo[o.ID], peer.Token{Topic: topic, TTL: w.until.Sub(now) + tokenGrace})
	}
}

// lacks reports whether an owner is to be sent a token: it has none, the one it has ends
// too early, or a consumer came too late to share it. Caller holds mu.
func (g *gateway) lacks(w *waiting, o Target, now time.Time) bool {
	if !o.Alive || g.refuses(o.ID, now) {
		return false
	}
	s, ok := w.sent[o.ID]
	return !ok || w.last.After(s.at.Add(shareWindow)) || s.till.Before(w.until) || now.Sub(s.at) >= renewAfter
}

// reprobes moves the next probe of a topic on and reports whether this one is to be made.
// Caller holds mu.
func (g *gateway) reprobes(topic string, w *waiting, now time.Time) bool {
	if g.tokenless(topic, now) {
		w.probe = now.Add(g.slower(w))
		return true
	}
	w.pause = 0
	w.probe = now.Add(safetyEvery)
	view, err := g.table.topic(topic)
	return err == nil && !g.table.route(view).local
}

// slower is the next pause of a topic where tokens do not work.
func (g *gateway) slower(w *waiting) time.Duration {
	w.pause = min(max(2*w.pause, fallbackMin), fallbackMax)
	return w.pause
}

// tokenless reports whether some owner that lives sends this node no word. Caller holds mu.
func (g *gateway) tokenless(topic string, now time.Time) bool {
	others := g.owners(topic)
	if len(others) > 0 && g.table.member(g.node).Addr == "" {
		return true
	}
	for _, o := range others {
		if o.Alive && g.refuses(o.ID, now) {
			return true
		}
	}
	return false
}

func (g *gateway) refuses(owner string, now time.Time) bool {
	until, ok := g.refused[owner]
	if ok && !now.Before(until) {
		delete(g.refused, owner)
		return false
	}
	return ok
}

func (g *gateway) owners(topic string) []Target {
	view, err := g.table.topic(topic)
	if err != nil {
		return nil
	}
	return g.table.route(view).others
}

// register sends an owner tokens. What fails is sent again at the keeper's next round.
func (g *gateway) register(ctx context.Context, owner string, tokens []peer.Token) {
	callback := g.table.member(g.node).Addr
	var err error
	for sent := 0; sent < len(tokens) && err == nil; sent += tokenFrameMax {
		part := tokens[sent:min(sent+tokenFrameMax, len(tokens))]
		err = g.send(ctx, owner, callback, part)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[owner]--; g.busy[owner] == 0 {
		delete(g.busy, owner)
	}
	for topic := range g.dirty {
		g.soon(topic)
		break
	}
	if err == nil {
		return
	}
	for _, t := range tokens {
		if w := g.topics[t.Topic]; w != nil {
			delete(w.sent, owner)
		}
	}
	var answer *peer.StatusError
	if errors.As(err, &answer) && answer.Status == http.StatusBadRequest {
		g.refused[owner] = g.clock.Now().Add(refusedFor)
		for _, t := range tokens {
			if w := g.topics[t.Topic]; w != nil && w.pause == 0 {
				w.probe = g.clock.Now().Add(g.slower(w))
			}
		}
		g.soon(tokens[0].Topic)
	}
}

func (g *gateway) send(ctx context.Context, owner, callback string, tokens []peer.Token) error {
	ctx, cancel := context.WithTimeout(ctx, probeBudget)
	defer cancel()
	return g.peers.RegisterTokens(ctx, g.table.member(owner).Addr, callback, tokens)
}
