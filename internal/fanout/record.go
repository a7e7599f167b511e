package fanout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"

	"github.com/narad-mq/narad/internal/model"
)

// recordSize is the fixed size of a cursor file: within one sector, so that an
// overwrite in place leaves the old record or the new one.
const recordSize = 256

// The fixed beginning of a record: the checksum covers everything behind it.
const (
	crcPrefix  = `{"crc":"`
	crcDigits  = 8
	crcCovered = len(crcPrefix) + crcDigits + 1 // past the closing quote
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a cursor's durable position: which attachment it belongs to, and the first
// offset of the parent partition that is not known to be in the child.
type record struct {
	epoch string
	next  int64
}

// appendRecord appends the 256 bytes of a record, or more when its epoch is too long to
// pad; such a record is never overwritten in place.
func appendRecord(dst []byte, r record) []byte {
	begin := len(dst)
	dst = append(dst, crcPrefix+"00000000"+`","epoch":`...)
	dst = strconv.AppendQuote(dst, r.epoch)
	dst = append(dst, `,"next_offset":`...)
	dst = strconv.AppendInt(dst, r.next, 10)
	dst = append(dst, '}')
	for len(dst)-begin < recordSize-1 {
		dst = append(dst, ' ')
	}
	dst = append(dst, '\n')
	sum := crc32.Checksum(dst[begin+crcCovered:], castagnoli)
	copy(dst[begin+len(crcPrefix):], fmt.Appendf(nil, "%08x", sum))
	return dst
}

// decodeRecord reads what appendRecord wrote, and the variable-length form of older
// releases, which has no checksum (fixed is false for it, and for a record too long to
// pad). Every failure matches model.ErrCorrupt.
func decodeRecord(b []byte) (r record, fixed bool, err error) {
	if len(b) > cursorFileMax {
		return record{}, false, corrupt("%d bytes, at most %d", len(b), cursorFileMax)
	}
	var f struct {
		CRC   *string `json:"crc"`
		Epoch string  `json:"epoch"`
		Next  *int64  `json:"next_offset"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields() // a damaged name of the checksum is not the older form
	if err := dec.Decode(&f); err != nil {
		return record{}, false, fmt.Errorf("%w: %w", model.ErrCorrupt, err)
	}
	if rest := bytes.TrimSpace(b[dec.InputOffset():]); len(rest) > 0 {
		return record{}, false, corrupt("%d bytes behind the record", len(rest))
	}
	if f.CRC != nil {
		if !bytes.HasPrefix(b, []byte(crcPrefix)) || len(b) < crcCovered || len(*f.CRC) != crcDigits {
			return record{}, false, corrupt("the checksum is not where it belongs")
		}
		if want := fmt.Sprintf("%08x", crc32.Checksum(b[crcCovered:], castagnoli)); *f.CRC != want {
			return record{}, false, corrupt("checksum %s, computed %s", *f.CRC, want)
		}
	}
	switch {
	case f.Epoch == "":
		return record{}, false, corrupt("no epoch")
	case f.Next == nil:
		return record{}, false, corrupt("no next_offset")
	case *f.Next < 0 || *f.Next == math.MaxInt64:
		return record{}, false, corrupt("next_offset %d", *f.Next)
	}
	return record{epoch: f.Epoch, next: *f.Next}, f.CRC != nil && len(b) == recordSize, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %w", model.ErrCorrupt, fmt.Errorf(format, args...))
}

func isCorrupt(err error) bool { return errors.Is(err, model.ErrCorrupt) }
