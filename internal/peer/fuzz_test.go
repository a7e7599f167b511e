package peer

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// requestDecoders read whatever arrives, as each release would, into something that can be
// compared. again encodes what was read.
func requestDecoders(level model.ReleaseLevel) []func(b []byte) (v any, again []byte, err error) {
	type out = func(b []byte) (any, []byte, error)
	encoded := func(f func(e *noderpc.Encoder)) []byte {
		var e noderpc.Encoder
		f(&e)
		return e
	}
	return []out{
		func(b []byte) (any, []byte, error) {
			r, err := decodeCommit(noderpc.NewDecoder(b), level)
			return r, encoded(func(e *noderpc.Encoder) { _, _ = r.encode(e) }), err
		},
		func(b []byte) (any, []byte, error) {
			r, err := decodeCommitOne(noderpc.NewDecoder(b), level)
			return r, nil, err
		},
		func(b []byte) (any, []byte, error) {
			m, err := decodeConsume(noderpc.NewDecoder(b), level)
			_ = consumeGate(b)
			return m, encoded(func(e *noderpc.Encoder) { _, _ = m.encode(e) }), err
		},
		func(b []byte) (any, []byte, error) {
			s, err := decodeSettle(noderpc.NewDecoder(b), model.Ack)
			return s, encoded(s.appendTarget), err
		},
		func(b []byte) (any, []byte, error) {
			list, err := decodeSettlements(noderpc.NewDecoder(b))
			return list, nil, err
		},
		func(b []byte) (any, []byte, error) {
			r, err := decodeStats(noderpc.NewDecoder(b), level)
			return r, encoded(func(e *noderpc.Encoder) { _ = r.encode(e) }), err
		},
		func(b []byte) (any, []byte, error) {
			r, err := decodeCursors(noderpc.NewDecoder(b))
			return r, encoded(r.encode), err
		},
		func(b []byte) (any, []byte, error) {
			m, err := decodeTokens(noderpc.NewDecoder(b))
			return m, encoded(m.encode), err
		},
		func(b []byte) (any, []byte, error) {
			m, err := decodeNotify(noderpc.NewDecoder(b))
			return m, encoded(m.encode), err
		},
		func(b []byte) (any, []byte, error) {
			m, err := decodeReport(noderpc.NewDecoder(b), level)
			return m, nil, err
		},
		func(b []byte) (any, []byte, error) {
			j, err := decodeJoin(noderpc.NewDecoder(b), level)
			return j, nil, err
		},
		func(b []byte) (any, []byte, error) {
			ch, err := decodeChange(noderpc.NewDecoder(b), hasTopic|hasChild|hasJSON)
			return ch, encoded(func(e *noderpc.Encoder) { _ = ch.encode(e, hasTopic|hasChild|hasJSON) }), err
		},
		func(b []byte) (any, []byte, error) {
			ch, err := decodeChange(noderpc.NewDecoder(b), hasJSON|hasName)
			return ch, encoded(func(e *noderpc.Encoder) { _ = ch.encode(e, hasJSON|hasName) }), err
		},
		func(b []byte) (any, []byte, error) {
			r, err := decodeForget(noderpc.NewDecoder(b))
			return r, encoded(r.encode), err
		},
		func(b []byte) (any, []byte, error) {
			name, err := decodeTopic(noderpc.NewDecoder(b))
			return name, nil, err
		},
		func(b []byte) (any, []byte, error) {
			_, p, err := decodeAssignment(noderpc.NewDecoder(b))
			return p, nil, err
		},
		func(b []byte) (any, []byte, error) {
			_, id, err := decodePurge(noderpc.NewDecoder(b))
			return id, nil, err
		},
	}
}

// FuzzRequests: whatever a peer sends is read or refused as invalid, and what was read
// says the same when it is written and read again.
func FuzzRequests(f *testing.F) {
	for _, m := range messages() {
		raw, err := hex.DecodeString(m.golden)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, r := range releases {
			for i, decode := range requestDecoders(r.level) {
				v, again, err := decode(b)
				switch {
				case err != nil:
					if !errors.Is(err, model.ErrInvalid) && !errors.Is(err, noderpc.ErrTruncated) && !errors.Is(err, noderpc.ErrTrailing) && !errors.Is(err, model.ErrBadHandle) {
						t.Fatalf("decoder %d: %v", i, err)
					}
					if e := refuse(noderpc.OpConsume, err); e.Status != 400 {
						t.Fatalf("decoder %d: refused with %d %s", i, e.Status, e.Text)
					}
				case again != nil && r.level == model.LevelNewest:
					if w, _, err := decode(again); err != nil || !reflect.DeepEqual(v, w) {
						t.Fatalf("decoder %d: %+v, read again %+v, %v", i, v, w, err)
					}
				}
			}
		}
	})
}

// FuzzAnswers: whatever a peer answers is read or refused, and stays within its bounds.
func FuzzAnswers(f *testing.F) {
	for _, m := range messages() {
		raw, err := hex.DecodeString(m.golden)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint16(200))
	}
	f.Add([]byte(`{"error":"not the metastore leader","code":"not_leader","leader_id":"n","leader_addr":"a:1"}`), uint16(421))
	f.Add([]byte(`{"error":"offset 3 aged out of retention (oldest retained: 17)","code":"offset_aged_out"}`), uint16(410))
	f.Fuzz(func(t *testing.T, b []byte, status uint16) {
		if ds, err := decodeDeliveries(noderpc.NewDecoder(b), "t"); err == nil && len(ds) > repliesMax {
			t.Fatalf("%d deliveries", len(ds))
		}
		for want := range 3 {
			if errs, err := decodeResults(noderpc.NewDecoder(b), want); err == nil && len(errs) != want {
				t.Fatalf("%d results for %d", len(errs), want)
			}
		}
		e := refusalOf(noderpc.Response{Status: int(status), Body: b})
		if e.Text == "" || len(e.LeaderAddr) > addrBytesMax || len(e.LeaderID) > nameBytesMax {
			t.Fatalf("refusal %+v", e)
		}
		var aged *model.AgedOutError
		var forbidden model.Forbidden
		_, _ = errors.As(e, &aged), errors.As(e, &forbidden)
		for _, r := range refusals {
			_ = errors.Is(e, r.is)
		}
	})
}
