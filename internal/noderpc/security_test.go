package noderpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/narad-mq/narad/internal/testutil"
)

// rogueDial connects to a server with nothing but QUIC.
func rogueDial(t testing.TB, addr string, protocols ...string) *quic.Conn {
	t.Helper()
	conn, err := quic.DialAddr(within(t, 5*time.Second), addr, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	return conn
}

func rogueStream(t testing.TB, conn *quic.Conn) *quic.Stream {
	t.Helper()
	stream, err := conn.OpenStreamSync(within(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func proofOf(t testing.TB, secret []byte, r role, conn *quic.Conn) []byte {
	t.Helper()
	state := conn.ConnectionState().TLS
	mac, err := security{secret: secret}.proof(r, &state)
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

func frameOf(kind frameType, id uint64, body []byte) []byte {
	return append(appendHead(nil, frameHead{kind: kind, id: id, size: len(body)}), body...)
}

// closedWith waits for the end of a connection and returns the code of the other end.
func closedWith(t testing.TB, conn *quic.Conn) quic.ApplicationErrorCode {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the connection stays open")
	}
	var app *quic.ApplicationError
	if !errors.As(context.Cause(conn.Context()), &app) || !app.Remote {
		t.Fatalf("the connection ended with %v", context.Cause(conn.Context()))
	}
	return app.ErrorCode
}

// TestRogueClients: nobody who does not hold the secret of this session gets a request
// in, and each loses the connection (spec/cluster-and-network section 4.1).
func TestRogueClients(t *testing.T) {
	request := frameOf(frameRequest, 1, []byte{byte(OpNodeStatus)})
	other := rogueOther(t)
	for name, first := range map[string]func(conn *quic.Conn) []byte{
		"wrong secret": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, proofOf(t, []byte("another"), roleClient, c))
		},
		"no secret": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, proofOf(t, nil, roleClient, c))
		},
		"replayed proof": func(*quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, proofOf(t, testSecret, roleClient, other))
		},
		"wrong role": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, proofOf(t, testSecret, roleServer, c))
		},
		"frame of the server": func(c *quic.Conn) []byte {
			return frameOf(frameAuthServer, 0, proofOf(t, testSecret, roleClient, c))
		},
		"legacy token": func(*quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, security{secret: testSecret}.legacyToken())
		},
		"request id": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 1, proofOf(t, testSecret, roleClient, c))
		},
		"request before auth": func(*quic.Conn) []byte { return nil },
		"oversized": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, append(proofOf(t, testSecret, roleClient, c), make([]byte, 24)...))
		},
		"16 MiB declared": func(*quic.Conn) []byte { return binary.BigEndian.AppendUint32(nil, frameMax) },
		"4 GiB declared":  func(*quic.Conn) []byte { return []byte{0xff, 0xff, 0xff, 0xff} },
		"short frame":     func(*quic.Conn) []byte { return []byte{0, 0, 0, 8, 1} },
		"truncated proof": func(c *quic.Conn) []byte {
			return frameOf(frameAuthClient, 0, proofOf(t, testSecret, roleClient, c)[:31])
		},
		"unknown type": func(c *quic.Conn) []byte {
			return frameOf(99, 0, proofOf(t, testSecret, roleClient, c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			s := serve(t, func(o *ServerOptions) { o.Logger = testLogger(&log) })
			var ran atomic.Bool
			s.Handle(OpNodeStatus, func(context.Context, []byte) Response { ran.Store(true); return Response{Status: 200} }, nil)
			conn := rogueDial(t, s.Addr(), alpnV2)
			stream := rogueStream(t, conn)
			if _, err := stream.Write(append(first(conn), request...)); err != nil {
				t.Fatal(err)
			}
			_ = stream.Close()
			if code := closedWith(t, conn); code != closeRejected {
				t.Errorf("closed with %d", code)
			}
			if got, _ := io.ReadAll(stream); len(got) != 0 {
				t.Errorf("the server answered %x", got)
			}
			if ran.Load() {
				t.Error("the request ran")
			}
			if !log.has("cluster stream rejected: invalid auth") || !log.has("component=audit") || !log.has("level=WARN") {
				t.Error("no audit line about it")
			}
		})
	}
}

// rogueOther is a session with another server of the same secret.
func rogueOther(t testing.TB) *quic.Conn {
	return rogueDial(t, serve(t, nil).Addr(), alpnV2)
}

// TestRogueEveryStream: a proof lets one stream in, not the connection.
func TestRogueEveryStream(t *testing.T) {
	s := serve(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	conn := rogueDial(t, s.Addr(), alpnV2)
	first := rogueStream(t, conn)
	proof := frameOf(frameAuthClient, 0, proofOf(t, testSecret, roleClient, conn))
	if _, err := first.Write(proof); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, authFrameSize)
	if _, err := io.ReadFull(first, answer); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(answer, frameOf(frameAuthServer, 0, proofOf(t, testSecret, roleServer, conn))) {
		t.Errorf("the server's proof is %x", answer)
	}
	second := rogueStream(t, conn)
	if _, err := second.Write(frameOf(frameRequest, 1, []byte{byte(OpNodeStatus)})); err != nil {
		t.Fatal(err)
	}
	if code := closedWith(t, conn); code != closeRejected {
		t.Errorf("closed with %d", code)
	}
}

// TestStreamGivenUpEndsAlone: a peer that has shown the secret opens a stream and gives it
// up before its proof is whole, as a client does whose opening took too long. Nothing else
// of the connection ends.
func TestStreamGivenUpEndsAlone(t *testing.T) {
	s := serve(t, nil)
	b := newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	c := dialler(t, nil)
	waiting := call(within(t, 10*time.Second), c, s.Addr(), OpConsume, nil)
	receive(t, b.entered, "the request runs")
	stream := rogueStream(t, linkOf(t, c, s.Addr()).conn)
	if _, err := stream.Write(frameOf(frameAuthClient, 0, make([]byte, macSize))[:9]); err != nil {
		t.Fatal(err)
	}
	stream.CancelWrite(streamDone)
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	var reset *quic.StreamError
	if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) {
		t.Errorf("the stream ended with %v", err)
	}
	close(b.release)
	if got := receive(t, waiting, "its answer"); got.err != nil || got.res.Status != 200 {
		t.Errorf("the request that ran: %d, %v", got.res.Status, got.err)
	}
}

// TestRejectedLater: the peer closes the connection for what one stream showed. Of a
// request on another one, which was proven, the outcome is unknown.
func TestRejectedLater(t *testing.T) {
	s := serve(t, nil)
	b := newBlocker()
	s.Handle(OpConsume, b.handle, nil)
	c := dialler(t, nil)
	waiting := call(within(t, 10*time.Second), c, s.Addr(), OpConsume, nil)
	receive(t, b.entered, "the request runs")
	stream := rogueStream(t, linkOf(t, c, s.Addr()).conn)
	if _, err := stream.Write(frameOf(frameAuthClient, 0, make([]byte, macSize))); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, waiting, "the caller learns of it"); !errors.Is(got.err, errLostConn) || errors.Is(got.err, ErrUnreached) {
		t.Errorf("a request that ran: %v", got.err)
	}
}

// proven is a stream of a rogue that knows the secret, but not the manners.
func proven(t testing.TB, s *Server) (*quic.Conn, *quic.Stream) {
	t.Helper()
	conn := rogueDial(t, s.Addr(), alpnV2)
	stream := rogueStream(t, conn)
	state := conn.ConnectionState().TLS
	if err := (security{secret: testSecret}).show(stream, &state); err != nil {
		t.Fatal(err)
	}
	return conn, stream
}

// TestRogueFrames: bytes that are no frame abort their stream and nothing else; a frame
// of an unknown type is answered, and the stream goes on.
func TestRogueFrames(t *testing.T) {
	s := serve(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	hang := make(chan struct{})
	defer close(hang)
	s.Handle(OpConsume, func(context.Context, []byte) Response { <-hang; return Response{Status: 204} }, nil)
	hanging := frameOf(frameRequest, 1, []byte{byte(OpConsume)})
	for name, bad := range map[string][]byte{
		"length over the cap": binary.BigEndian.AppendUint32(nil, frameMax+1),
		"length under":        {0, 0, 0, 8},
		"id in use":           append(bytes.Clone(hanging), hanging...),
	} {
		t.Run(name, func(t *testing.T) {
			conn, stream := proven(t, s)
			if _, err := stream.Write(append(bad, make([]byte, 16)...)); err != nil {
				t.Fatal(err)
			}
			_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
			_, err := io.ReadAll(stream)
			var reset *quic.StreamError
			if !errors.As(err, &reset) || reset.ErrorCode != streamProtocol {
				t.Fatalf("the stream ended with %v", err)
			}
			if conn.Context().Err() != nil {
				t.Error("the connection ended with it")
			}
		})
	}
	t.Run("unknown type", func(t *testing.T) {
		_, stream := proven(t, s)
		in := frameOf(99, 5, []byte("of a newer release"))
		in = append(in, frameOf(frameRequest, 6, nil)...)
		in = append(in, frameOf(frameRequest, 7, []byte{byte(OpNodeStatus), 42})...)
		if _, err := stream.Write(in); err != nil {
			t.Fatal(err)
		}
		response := Response{Status: 200, ContentType: "application/octet-stream", Body: []byte{42}}
		want := errorFrame(5, "unknown frame type 99")
		want = append(want, errorFrame(6, "request without an operation")...)
		want, _ = response.encode(want, 7)
		got := make([]byte, len(want))
		_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(stream, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("answered %x, want %x (%v)", got, want, err)
		}
	})
	t.Run("proof again", func(t *testing.T) {
		conn, stream := proven(t, s)
		if _, err := stream.Write(frameOf(frameAuthClient, 0, make([]byte, macSize))); err != nil {
			t.Fatal(err)
		}
		if code := closedWith(t, conn); code != closeRejected {
			t.Errorf("closed with %d", code)
		}
	})
}

// TestRogueStreamLimit: a peer opens 256 streams and no more, and none of one direction.
func TestRogueStreamLimit(t *testing.T) {
	s := serve(t, func(o *ServerOptions) { o.Secret, o.Secured = nil, false })
	conn := rogueDial(t, s.Addr(), alpnV2)
	for i := range incomingStreams {
		if _, err := conn.OpenStream(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if _, err := conn.OpenStream(); err == nil {
		t.Error("one stream more than allowed")
	}
	if _, err := conn.OpenUniStream(); err == nil {
		t.Error("a stream of one direction")
	}
}

// TestRogueConnections: strangers hold no more than their share of connections.
func TestRogueConnections(t *testing.T) {
	s := serve(t, nil)
	s.unproven.Store(unprovenMax)
	conn := rogueDial(t, s.Addr(), alpnV2)
	if code := closedWith(t, conn); code != closeBusy {
		t.Errorf("closed with %d", code)
	}
	s.unproven.Store(unprovenMax - 1)
	proven(t, s)
	if n := s.unproven.Load(); n != unprovenMax-1 {
		t.Errorf("%d unproven connections after a proof, want %d", n, unprovenMax-1)
	}
}

// TestRogueSilence: who shows no proof in time is closed, with a stream or without.
func TestRogueSilence(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	without := rogueDial(t, s.Addr(), alpnV2)
	with := rogueDial(t, s.Addr(), alpnV2)
	if _, err := rogueStream(t, with).Write([]byte{0, 0, 0, 41}); err != nil {
		t.Fatal(err)
	}
	for _, conn := range []*quic.Conn{without, with} {
		select {
		case <-conn.Context().Done():
		case <-time.After(proofWait + 3*time.Second):
			t.Fatal("the connection stays open")
		}
		if code := closedWith(t, conn); code != closeRejected {
			t.Errorf("closed with %d", code)
		}
	}
	testutil.Eventually(t, 5*time.Second, func() bool { return s.unproven.Load() == 0 }, "the places of the unproven are free")
}

// rogueServer answers the first frame of each stream by what answer makes of it, and
// counts what comes after.
func rogueServer(t testing.TB, answer func(conn *quic.Conn, first []byte) []byte) (addr string, after *atomic.Int64) {
	t.Helper()
	tlsConfig, err := security{secret: testSecret, allowLegacy: true}.serverTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: socket}
	listener, err := transport.Listen(tlsConfig, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close(); _ = transport.Close(); _ = socket.Close() })
	after = &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			stream, err := conn.AcceptStream(context.Background())
			if err != nil {
				continue
			}
			first := make([]byte, authFrameSize)
			if _, err := io.ReadFull(stream, first); err != nil {
				continue
			}
			_, _ = stream.Write(answer(conn, first))
			rest, _ := io.ReadAll(stream)
			after.Add(int64(len(rest)))
		}
	}()
	return socket.LocalAddr().String(), after
}

// TestRogueServers: a client sends no request to a server that does not prove the secret,
// says that nothing was delivered, and does not dial it in a loop.
func TestRogueServers(t *testing.T) {
	for name, answer := range map[string]func(*quic.Conn, []byte) []byte{
		"wrong secret": func(c *quic.Conn, _ []byte) []byte {
			return frameOf(frameAuthServer, 0, proofOf(t, []byte("another"), roleServer, c))
		},
		"proof sent back": func(_ *quic.Conn, first []byte) []byte {
			return frameOf(frameAuthServer, 0, first[headerSize:])
		},
		"frame sent back": func(_ *quic.Conn, first []byte) []byte { return first },
		"error":           func(*quic.Conn, []byte) []byte { return errorFrame(0, "unknown frame type 1") },
		"response":        func(*quic.Conn, []byte) []byte { return frameOf(frameResponse, 1, make([]byte, 10)) },
		"16 MiB declared": func(*quic.Conn, []byte) []byte {
			return appendHead(nil, frameHead{kind: frameAuthServer, size: bodyMax})
		},
	} {
		t.Run(name, func(t *testing.T) {
			addr, after := rogueServer(t, answer)
			c := dialler(t, nil)
			_, err := c.Call(within(t, 5*time.Second), addr, OpAck, []byte("body"))
			if !errors.Is(err, ErrUnreached) || !strings.Contains(fmt.Sprint(err), "cluster rpc: read server auth proof:") {
				t.Errorf("got %v", err)
			}
			if _, err := c.Call(within(t, 5*time.Second), addr, OpAck, nil); !errors.Is(err, errBackoff) {
				t.Errorf("called again: %v, want the backoff", err)
			}
			if after.Load() != 0 {
				t.Errorf("%d bytes sent to a server without proof", after.Load())
			}
		})
	}
}

// TestSecretMatrix: both ends open, or both of one secret; everything else fails.
func TestSecretMatrix(t *testing.T) {
	secrets := map[string][]byte{"none": nil, "one": testSecret, "another": []byte("another")}
	for server, serverSecret := range secrets {
		for client, clientSecret := range secrets {
			t.Run(server+"/"+client, func(t *testing.T) {
				s := serve(t, func(o *ServerOptions) { o.Secret, o.Secured = serverSecret, false })
				var ran atomic.Bool
				s.Handle(OpNodeStatus, func(context.Context, []byte) Response { ran.Store(true); return Response{Status: 200} }, nil)
				c := dialler(t, func(o *ClientOptions) { o.Secret, o.Secured = clientSecret, false })
				_, err := c.Call(within(t, 5*time.Second), s.Addr(), OpNodeStatus, nil)
				if want := server == client; (err == nil) != want || ran.Load() != want {
					t.Fatalf("ran: %v, err: %v", ran.Load(), err)
				}
				if err != nil && !errors.Is(err, ErrUnreached) {
					t.Errorf("a refused proof leaves the outcome open: %v", err)
				}
				if err != nil {
					testutil.Eventually(t, 5*time.Second, func() bool {
						_, err := c.Call(within(t, time.Second), s.Addr(), OpNodeStatus, nil)
						return errors.Is(err, errBackoff)
					}, "a refused client backs off")
				}
			})
		}
	}
}

func TestSecuredWithoutSecret(t *testing.T) {
	if _, err := Listen(ServerOptions{Addr: "127.0.0.1:0", Secured: true}); !errors.Is(err, ErrNoSecret) {
		t.Errorf("Listen: %v", err)
	}
	if _, err := NewClient(ClientOptions{Secured: true}); !errors.Is(err, ErrNoSecret) {
		t.Errorf("NewClient: %v", err)
	}
}

// TestLegacy: two current nodes use proofs even with the bridge open; an old peer is let
// in, and found, only with it (spec/cluster-and-network section 4.3).
func TestLegacy(t *testing.T) {
	t.Run("both current", func(t *testing.T) {
		var log lines
		s := serve(t, func(o *ServerOptions) { o.AllowLegacy, o.Logger = true, testLogger(&log) })
		s.Handle(OpNodeStatus, echo, nil)
		c := dialler(t, func(o *ClientOptions) { o.AllowLegacy = true })
		if _, err := c.Call(within(t, 5*time.Second), s.Addr(), OpNodeStatus, nil); err != nil {
			t.Fatal(err)
		}
		if log.has("legacy") {
			t.Error("they used the bridge")
		}
	})
	t.Run("old client", func(t *testing.T) {
		var log lines
		s := serve(t, func(o *ServerOptions) { o.AllowLegacy, o.Logger = true, testLogger(&log) })
		s.Handle(OpNodeStatus, echo, nil)
		stream := rogueStream(t, rogueDial(t, s.Addr(), alpnV1))
		in := frameOf(frameAuthClient, 0, security{secret: testSecret}.legacyToken())
		if _, err := stream.Write(append(in, frameOf(frameRequest, 1, []byte{byte(OpNodeStatus)})...)); err != nil {
			t.Fatal(err)
		}
		_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
		var scratch [headerSize]byte
		if head, err := readHead(stream, &scratch, frameMax); err != nil || head.kind != frameResponse || head.id != 1 {
			t.Fatalf("answered %+v, %v", head, err)
		}
		if !log.has("cluster connection of a peer with legacy auth") {
			t.Error("no line about it")
		}
	})
	t.Run("old client with a wrong token", func(t *testing.T) {
		s := serve(t, func(o *ServerOptions) { o.AllowLegacy = true })
		conn := rogueDial(t, s.Addr(), alpnV1)
		if _, err := rogueStream(t, conn).Write(frameOf(frameAuthClient, 0, make([]byte, macSize))); err != nil {
			t.Fatal(err)
		}
		if code := closedWith(t, conn); code != closeRejected {
			t.Errorf("closed with %d", code)
		}
	})
	t.Run("bridge closed", func(t *testing.T) {
		s := serve(t, nil)
		_, err := quic.DialAddr(within(t, 5*time.Second), s.Addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpnV1}}, nil)
		if err == nil {
			t.Fatal("an old peer is let in")
		}
	})
	t.Run("old server", func(t *testing.T) {
		for _, allow := range []bool{true, false} {
			s := serve(t, func(o *ServerOptions) { o.AllowLegacy = true })
			s.Handle(OpNodeStatus, echo, nil)
			c := dialler(t, func(o *ClientOptions) { o.AllowLegacy = allow })
			p, err := c.peer(s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			p.tls.NextProtos = p.tls.NextProtos[1:] // as if the server knew no other
			if _, err = c.Call(within(t, 5*time.Second), s.Addr(), OpNodeStatus, nil); (err == nil) != allow {
				t.Errorf("bridge %v: %v", allow, err)
			}
		}
	})
}

// TestResumption: a redial resumes the session, its proof is another's, and the sessions
// of one address leave those of another alone.
func TestResumption(t *testing.T) {
	s := serve(t, nil)
	s.Handle(OpNodeStatus, echo, nil)
	c := dialler(t, nil)
	session := func(addr string) (resumed bool, proof []byte, l *link) {
		t.Helper()
		if _, err := c.Call(within(t, 5*time.Second), addr, OpNodeStatus, nil); err != nil {
			t.Fatal(err)
		}
		p, err := c.peer(addr)
		if err != nil {
			t.Fatal(err)
		}
		l = p.link.Load()
		return l.conn.ConnectionState().TLS.DidResume, proofOf(t, testSecret, roleClient, l.conn), l
	}
	resumed, first, l := session(s.Addr())
	if resumed {
		t.Fatal("the first session is resumed")
	}
	var second []byte
	testutil.Eventually(t, 10*time.Second, func() bool { // the ticket comes after the handshake
		l.close(closeDone, "test")
		resumed, second, l = session(s.Addr())
		return resumed
	}, "a redial resumes the session")
	if bytes.Equal(first, second) {
		t.Error("a resumed session has the proof of the first")
	}
	other := serve(t, nil)
	other.Handle(OpNodeStatus, echo, nil)
	_, _, theirs := session(other.Addr())
	testutil.Eventually(t, 10*time.Second, func() bool {
		theirs.close(closeDone, "test")
		resumed, _, theirs = session(other.Addr())
		return resumed
	}, "so does one to another address")
	l.close(closeDone, "test")
	if resumed, _, _ := session(s.Addr()); !resumed {
		t.Error("the sessions of another address took the place of this one's")
	}
}
