package noderpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// tryMax is the largest frame handed to the connection to queue; a larger one is written
// from its own buffer, waiting for the peer to take it.
const tryMax = 64 << 10

// errUnwritten: not one byte of a frame was written, so the stream is as it was.
var errUnwritten = errors.New("nothing written")

// sendStream is what a frameWriter needs of a stream.
type sendStream interface {
	Write(p []byte) (int, error)
	TryWriteAll(p []byte) error
	SetWriteDeadline(t time.Time) error
	CancelWrite(code quic.StreamErrorCode)
}

// frameWriter writes whole frames to a stream that many requests share.
type frameWriter struct {
	stream sendStream
	// queueing orders those that queue: a second one inside the stream would be told to
	// wait, which costs far more than waiting here does.
	queueing sync.Mutex
	// token is held by the one that writes to stream and may have to wait for it.
	token chan struct{}
}

func newFrameWriter(s sendStream) *frameWriter {
	return &frameWriter{stream: s, token: make(chan struct{}, 1)}
}

// try queues a frame without waiting, and reports whether it did. The error is the
// stream's end.
func (w *frameWriter) try(frame []byte) (bool, error) {
	if len(frame) > tryMax {
		return false, nil
	}
	w.queueing.Lock()
	err := w.stream.TryWriteAll(frame)
	w.queueing.Unlock()
	if errors.Is(err, quic.ErrWouldBlock) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", errUnwritten, err)
	}
	return true, nil
}

// write writes the frame made of parts, none when ctx ends before the first byte (the
// error is then errUnwritten), and ends the stream when ctx ends in the middle: what
// follows half a frame cannot be read (spec/cluster-and-network section 3).
func (w *frameWriter) write(ctx context.Context, parts ...[]byte) error {
	if len(parts) == 1 {
		if done, err := w.try(parts[0]); done || err != nil {
			return err
		}
	}
	select {
	case w.token <- struct{}{}:
		defer func() { <-w.token }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnwritten, ctx.Err())
	}
	if len(parts) == 1 { // whoever wrote before may have been all it waited for
		if done, err := w.try(parts[0]); done || err != nil {
			return err
		}
	}
	release := interrupt(ctx, w.stream.SetWriteDeadline)
	wrote, err := 0, error(nil)
	for _, p := range parts {
		var n int
		n, err = w.stream.Write(p)
		wrote += n
		if err != nil {
			break
		}
	}
	release()
	switch {
	case err == nil:
		return nil
	case wrote == 0:
		return fmt.Errorf("%w: %w", errUnwritten, errors.Join(ctx.Err(), err))
	}
	w.stream.CancelWrite(streamPartial)
	return fmt.Errorf("written %d bytes of a frame: %w", wrote, errors.Join(ctx.Err(), err))
}

// interrupt ends what waits on a stream when ctx ends, by set, the setter of its read or
// write deadline. The stream is as before once release has returned.
func interrupt(ctx context.Context, set func(time.Time) error) (release func()) {
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = set(time.Unix(1, 0)) // has passed; a deadline cannot fail to be set
		close(expired)
	})
	return func() {
		if !stop() {
			<-expired
			_ = set(time.Time{})
		}
	}
}
