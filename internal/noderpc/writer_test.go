package noderpc

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
)

// blocked is a stream that takes nothing.
type blocked struct{}

func (blocked) Write([]byte) (int, error)             { return 0, io.ErrNoProgress }
func (blocked) TryWriteAll([]byte) error              { return quic.ErrWouldBlock }
func (blocked) SetWriteDeadline(time.Time) error      { return nil }
func (blocked) CancelWrite(code quic.StreamErrorCode) {}

// TestWriteGivenUp: a frame given up before its first byte leaves the stream as it was;
// one given up in the middle resets it (spec/cluster-and-network section 3).
func TestWriteGivenUp(t *testing.T) {
	conn := rogueDial(t, sink(t), alpnV2)
	w := newFrameWriter(rogueStream(t, conn))
	short := func() context.Context {
		ctx, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
		t.Cleanup(stop)
		return ctx
	}
	w.token <- struct{}{} // somebody writes
	if err := w.write(short(), make([]byte, tryMax+1)); !errors.Is(err, errUnwritten) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("behind another: %v", err)
	}
	<-w.token
	if err := w.write(within(t, soon), make([]byte, 100)); err != nil {
		t.Fatalf("the stream after it: %v", err)
	}
	// What fits the window goes through; the frame after it finds no room at all.
	if err := w.write(short(), make([]byte, 20<<20)); err == nil || errors.Is(err, errUnwritten) {
		t.Errorf("in the middle: %v", err)
	}
	if err := w.write(within(t, soon), make([]byte, 100)); !errors.Is(err, errUnwritten) {
		t.Errorf("after half a frame: %v, want the stream's end", err)
	}
	if conn.Context().Err() != nil {
		t.Error("the connection ended with the stream")
	}
}

// sink is a server that accepts connections and streams and reads nothing, so that a
// stream takes what its windows hold and no more.
func sink(t testing.TB) string {
	t.Helper()
	tlsConfig, err := security{}.serverTLS(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := quic.ListenAddr("127.0.0.1:0", tlsConfig, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}
