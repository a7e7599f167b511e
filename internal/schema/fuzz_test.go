package schema

import (
	"errors"
	"testing"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// fuzzTime is what one input may take; the bounds keep it far below.
const fuzzTime = 10 * time.Second

func soon(t *testing.T, start time.Time) {
	t.Helper()
	if spent := time.Since(start); spent > fuzzTime {
		t.Fatalf("took %s", spent)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range decodeSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkDecode)
}

// Whatever is registered, the answer is a schema or a refusal, and what is stored
// registers again as itself.
func FuzzRegister(f *testing.F) {
	for _, c := range registerCases {
		if len(c.doc) < 4<<10 {
			f.Add([]byte(c.doc))
		}
	}
	for _, c := range compatibleCases {
		f.Add([]byte(c.a))
		f.Add([]byte(c.b))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		start := time.Now()
		s, stored, err := Register("t", 1, doc)
		soon(t, start)
		if err != nil {
			if !errors.Is(err, model.ErrInvalid) {
				t.Fatal(err)
			}
			_, _ = Compile("t", 1, doc)
			return
		}
		_ = s.Validate([]byte(`{"a":[1,"b",{"c":null}]}`))
		again, err := Compile("t", 1, stored)
		if err != nil || again.refusal != nil || again.costly != s.costly {
			t.Fatalf("what was stored compiles to %+v, %v", again, err)
		}
		if !SameMeaning(doc, stored) || !SameHistory([][]byte{doc}, [][]byte{stored}) {
			t.Fatal("what was stored is not what was sent")
		}
		if err := Compatible(doc, stored); err != nil {
			t.Fatalf("a document is not compatible with itself: %v", err)
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, c := range payloadCases {
		if len(c.doc)+len(c.payload) < 4<<10 {
			f.Add([]byte(c.doc), []byte(c.payload))
		}
	}
	f.Fuzz(func(t *testing.T, doc, payload []byte) {
		s, err := Compile("t", 1, doc)
		if err != nil {
			return
		}
		start := time.Now()
		err = s.Validate(payload)
		soon(t, start)
		if err != nil && (!errors.Is(err, model.ErrInvalid) || len(err.Error()) > 2*reportMax) {
			t.Fatalf("%d bytes: %.300v", len(err.Error()), err)
		}
	})
}

func FuzzCompatible(f *testing.F) {
	for _, c := range compatibleCases {
		f.Add([]byte(c.a), []byte(c.b))
	}
	f.Fuzz(func(t *testing.T, old, next []byte) {
		start := time.Now()
		if err := Compatible(old, next); err != nil && !errors.Is(err, model.ErrInvalid) {
			t.Fatal(err)
		}
		same := SameMeaning(old, next)
		if same != SameMeaning(next, old) {
			t.Fatal("SameMeaning depends on the order")
		}
		soon(t, start)
	})
}
