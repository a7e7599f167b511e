package position

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// The two state files of a partition directory.
const (
	OffsetName = "consumer.offset"
	AheadName  = "consumer.ahead"
)

// offsetMagic marks consumer.offset.
var offsetMagic = [4]byte{'N', 'C', 'O', '1'}

// opener is how a state file is reached: by path, or inside a pinned directory.
type opener interface {
	Open(name string, flag int) (disk.File, error)
}

// Load reads the persisted position of the partition in dir, as it was for the
// incarnation inc: the larger of the two files, model.NoPosition when there is
// none. Damage is never an error, only less position; an I/O error is one.
func Load(fsys disk.FS, dir string, inc model.Incarnation) (model.Position, error) {
	st, err := readState(fsys, dir, inc)
	if err != nil {
		return model.Position{}, fmt.Errorf("load consumer position of %s: %w", dir, err)
	}
	return st.position(), nil
}

// state is what the two files of a partition hold.
type state struct {
	slots  [2]slot
	valid  [2]bool
	offset int64 // consumer.offset, -1 = none
	seq    uint64
	size   int64   // of consumer.ahead, up to aheadSize; -1 = no such file
	damage []error // what did not decode; matches model.ErrCorrupt
}

// newest is the index of the slot that counts, -1 when neither is valid.
func (s *state) newest() int {
	switch {
	case s.valid[0] && s.valid[1] && s.slots[1].seq > s.slots[0].seq:
		return 1
	case s.valid[0]:
		return 0
	case s.valid[1]:
		return 1
	}
	return -1
}

// position is the larger of the two frontiers with what is settled above it.
func (s *state) position() model.Position {
	pos := model.NoPosition()
	if i := s.newest(); i >= 0 {
		pos = s.slots[i].pos
	}
	pos.Committed = max(pos.Committed, s.offset)
	for len(pos.Ahead) > 0 && pos.Ahead[0].Start <= pos.Committed+1 {
		pos.Committed = max(pos.Committed, pos.Ahead[0].End-1)
		pos.Ahead = pos.Ahead[1:]
	}
	return pos
}

// readState reads both files; prefix is joined before their names.
func readState(at opener, prefix string, inc model.Incarnation) (*state, error) {
	st := &state{offset: -1, size: -1}
	var buf [aheadSize + 1]byte
	b, err := readUpTo(at, path.Join(prefix, AheadName), buf[:aheadSize])
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		st.size = int64(len(b))
		st.addSlots(b, inc)
	}
	b, err = readUpTo(at, path.Join(prefix, OffsetName), buf[:disk.FactSize+1])
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		st.addOffset(b)
	}
	return st, nil
}

func (s *state) addSlots(b []byte, inc model.Incarnation) {
	for i := range s.slots {
		part := b[min(i*slotSize, len(b)):min((i+1)*slotSize, len(b))]
		if len(part) == 0 {
			continue // a move's copy carries slot 0 only
		}
		sl, written, err := decodeSlot(part)
		if err != nil {
			s.damage = append(s.damage, fmt.Errorf("%s slot %d: %w", AheadName, i, err))
			continue
		}
		s.seq = max(s.seq, sl.seq)
		if written && !inc.Differs(sl.incarnation) {
			s.slots[i], s.valid[i] = sl, true
		}
	}
}

func (s *state) addOffset(b []byte) {
	v, what := disk.DecodeFact(offsetMagic, b)
	if what == disk.FactEmpty {
		return
	}
	if what != disk.FactValid || v < -1 || v >= offsetMax {
		s.damage = append(s.damage, fmt.Errorf("%s: %w", OffsetName, corrupt("%d bytes, value %d", len(b), v)))
		return
	}
	s.offset = v
}

// readUpTo fills buf from the start of a file and returns what there was.
func readUpTo(at opener, name string, buf []byte) ([]byte, error) {
	f, err := at.Open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return buf[:n], errors.Join(err, f.Close())
}
