package peer

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Token asks an owner to tell this node when a topic has a record for a consumer parked
// here (spec/consume-and-delivery section 7).
type Token struct {
	Topic string
	TTL   time.Duration // whole milliseconds from arrival, each side's own clock
	Drop  bool          // forget the one there is
}

// Tokens keeps tokens at an owner, and takes their notifications where they came from:
// Notify reports whether a consumer will claim.
type Tokens interface {
	RegisterTokens(node, callback string, tokens []Token)
	Notify(topic, owner string) bool
}

// tokensMessage is op 30.
type tokensMessage struct {
	node, callback string
	tokens         []Token
}

// tokenBytesMin is what a token takes besides its topic.
const tokenBytesMin = 4 + 4 + 1

func (m *tokensMessage) encode(e *noderpc.Encoder) {
	e.AppendStr(m.node)
	e.AppendStr(m.callback)
	e.AppendU32(uint32(len(m.tokens)))
	for _, t := range m.tokens {
		ttl := (max(t.TTL, 0) + time.Millisecond - 1) / time.Millisecond
		e.AppendStr(t.Topic)
		e.AppendU32(uint32(min(ttl, math.MaxUint32)))
		e.AppendBool(t.Drop)
	}
}

func decodeTokens(d *noderpc.Decoder) (m tokensMessage, err error) {
	m.node, m.callback = d.Str(), d.Str()
	n := d.Count(tokenBytesMin)
	for range n {
		t := Token{Topic: d.Str(), TTL: time.Duration(d.U32()) * time.Millisecond, Drop: d.Bool()}
		if len(m.tokens) < tokensMax {
			m.tokens = append(m.tokens, t)
		}
	}
	if err := d.Done(); err != nil {
		return m, err
	}
	return m, m.check(n)
}

func (m *tokensMessage) check(n int) error {
	if n > tokensMax {
		return fmt.Errorf("%w: %d tokens, at most %d", model.ErrInvalid, n, tokensMax)
	}
	if m.node == "" {
		return fmt.Errorf("%w: tokens of no node", model.ErrInvalid)
	}
	if err := bounded("node id", m.node, nameBytesMax); err != nil {
		return err
	}
	if err := address("callback", m.callback); err != nil {
		return err
	}
	for i := range m.tokens {
		if err := topicName(m.tokens[i].Topic); err != nil {
			return err
		}
	}
	return nil
}

// address checks a host:port somebody will dial.
func address(field, s string) error {
	if err := bounded(field, s, addrBytesMax); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" || port == "0" {
		return fmt.Errorf("%w: %s %q is no host:port", model.ErrInvalid, field, s)
	}
	return nil
}

// RegisterTokens leaves this node's tokens at an owner, each in place of the one there is;
// notifications go to callback, this node's API address.
func (c *Client) RegisterTokens(ctx context.Context, addr, callback string, tokens []Token) error {
	ctx, cancel := context.WithTimeout(ctx, tokenBudget)
	defer cancel()
	for some := range slices.Chunk(tokens, tokensMax) {
		m := tokensMessage{node: c.self, callback: callback, tokens: some}
		var e noderpc.Encoder
		m.encode(&e)
		if _, err := accepted(c.send(ctx, addr, noderpc.OpTokenRegister, e)); err != nil {
			return err
		}
	}
	return nil
}

// notifyMessage is op 31.
type notifyMessage struct{ topic, owner string }

func (m *notifyMessage) encode(e *noderpc.Encoder) {
	e.AppendStr(m.topic)
	e.AppendStr(m.owner)
}

func decodeNotify(d *noderpc.Decoder) (m notifyMessage, err error) {
	m.topic, m.owner = d.Str(), d.Str()
	if err := d.Done(); err != nil {
		return m, err
	}
	if err := bounded("owner", m.owner, nameBytesMax); err != nil {
		return m, err
	}
	return m, topicName(m.topic)
}

// NotifyToken tells the node a token came from that this one has a record for it, and
// reports whether a consumer there will claim it.
func (c *Client) NotifyToken(ctx context.Context, addr, topic string) (claim bool, err error) {
	var e noderpc.Encoder
	(&notifyMessage{topic, c.self}).encode(&e)
	res, err := c.call(ctx, addr, noderpc.OpTokenNotify, tokenBudget, e)
	if err != nil {
		return false, err
	}
	d := noderpc.NewDecoder(res.Body)
	claim = d.Bool()
	if err := d.Err(); err != nil {
		return false, fmt.Errorf("%s at %s: answer: %w", noderpc.OpTokenNotify, addr, err)
	}
	return claim, nil
}

// ServeTokens serves ops 30 and 31.
func ServeTokens(s Server, _ model.ReleaseLevel, t Tokens) {
	serve(s, noderpc.OpTokenRegister, nil, nil, func(_ context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		m, err := decodeTokens(d)
		if err == nil {
			t.RegisterTokens(m.node, m.callback, m.tokens)
		}
		return empty(), err
	})
	serve(s, noderpc.OpTokenNotify, nil, nil, func(_ context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		m, err := decodeNotify(d)
		if err != nil {
			return noderpc.Response{}, err
		}
		var e noderpc.Encoder
		e.AppendBool(t.Notify(m.topic, m.owner))
		return noderpc.Response{Status: http.StatusOK, ContentType: typeBinary, Body: e}, nil
	})
}
