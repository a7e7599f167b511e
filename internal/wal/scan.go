package wal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// scanBudget bounds the bytes checksummed while looking behind a bad frame, as a
// multiple of the file: payloads can be made to look like overlapping frames.
const scanBudget = 16

var (
	errHeader      = errors.New("segment header is damaged")
	errBehind      = errors.New("a valid frame of a later write follows, so acknowledged records are damaged")
	errMisplaced   = errors.New("a valid frame stands where it was never written")
	errOverlap     = errors.New("the frame of the next segment's first seq is here too")
	errAmbiguous   = errors.New("too many look-alikes of frames follow to tell a torn write from damage")
	errUnsaltedSeq = errors.New("no valid segment header, but frames of this segment follow")
)

// scan checks one segment file. Its rules are the decision table of the package
// comment.
type scan struct {
	src  io.ReaderAt
	seg  *segment
	size int64
	view window
}

// header reads the segment's header into seg. ok is false if it is not a valid one
// for this name; raw is what stands there.
func (s *scan) header() (h segmentHeader, raw []byte, ok bool, err error) {
	raw, err = s.view.at(s.src, 0, headerSize, s.size)
	if err != nil {
		return h, nil, false, err
	}
	h, ok = decodeHeader(raw)
	if ok && h.base == s.seg.base {
		s.seg.saltSum = h.saltSum()
		return h, raw, true, nil
	}
	return h, raw, false, nil
}

// frameAt reads and verifies the frame at pos. bad says why there is none.
func (s *scan) frameAt(pos int64) (f frame, bad, err error) {
	b, err := s.view.at(s.src, pos, frameHeaderSize, s.size)
	if err != nil {
		return f, nil, err
	}
	if f, bad = parseFrameHeader(b); bad != nil {
		return f, bad, nil
	}
	if b, err = s.view.at(s.src, pos, f.size(), s.size); err != nil {
		return f, nil, err
	}
	return f, f.verify(b, s.seg.saltSum), nil
}

// sealed checks a segment that another one follows: every frame up to the seq before
// until must be there. What lies behind the last one is not looked at, but for a
// frame that the next segment has too.
func (s *scan) sealed(until uint64) error {
	_, _, ok, err := s.header()
	if err != nil {
		return err
	}
	if !ok {
		return corrupt(s.seg.path, 0, errHeader)
	}
	at, bad, err := s.run(until)
	if err != nil {
		return err
	}
	if at.next < until {
		return corrupt(s.seg.path, at.end, fmt.Errorf("seq %d is due, the next segment starts at %d: %w", at.next, until, bad))
	}
	f, bad, err := s.frameAt(at.end)
	if err != nil {
		return err
	}
	if bad == nil && f.seq == until {
		return corrupt(s.seg.path, at.end, errOverlap)
	}
	return nil
}

// ran is how far a run of valid frames goes, and the group a following frame is of.
type ran struct {
	lastSegment
	expect uint16
}

// run walks the valid frames from the segment's start, up to seq until. bad is why
// it ended earlier.
func (s *scan) run(until uint64) (at ran, bad, err error) {
	at = ran{lastSegment: lastSegment{next: s.seg.base, end: headerSize, group: headerSize}}
	whole := true // the last frame ended its group
	for at.next < until {
		f, bad, err := s.frameAt(at.end)
		if bad == nil && err == nil && (f.seq != at.next || f.group.number != at.expect) {
			bad = fmt.Errorf("%w: seq %d of group %d, due are %d and %d", errMisplaced, f.seq, f.group.number, at.next, at.expect)
		}
		if bad != nil || err != nil {
			return at, bad, err
		}
		if whole {
			at.group = at.end
		}
		whole = !f.group.more
		s.seg.addMark(f.seq, at.end)
		at.next++
		at.end += int64(f.size())
		at.expect = f.group.following()
		s.seg.end.Store(at.end)
	}
	return at, nil, nil
}

// newest checks the last segment and finds its end.
func (s *scan) newest(log *slog.Logger) (lastSegment, error) {
	h, raw, ok, err := s.header()
	if err != nil {
		return lastSegment{}, err
	}
	if !ok {
		return s.unstarted(h, raw, log)
	}
	at, bad, err := s.run(^uint64(0))
	if err != nil {
		return lastSegment{}, err
	}
	if errors.Is(bad, errMisplaced) {
		return lastSegment{}, corrupt(s.seg.path, at.end, bad)
	}
	dropped, err := s.torn(at, bad)
	if err != nil {
		return lastSegment{}, err
	}
	if dropped > 0 || errors.Is(bad, errFrameCRC) {
		log.Warn("ingress WAL: a torn group commit was cut off", "file", s.seg.path, "position", at.end, "next_seq", at.next, "frames_behind", dropped)
	}
	return at.lastSegment, nil
}

// torn decides what the bad frame at at.end is: nil if it can be what a write left
// that was never synced, an error if records are damaged that were. Only the write of
// one group is unsynced at a time, and each frame names its group. So every valid
// frame behind must be of the very group the bad one is of; one of another group was
// written after that group's sync. dropped counts those of the same group.
func (s *scan) torn(at ran, bad error) (dropped int, err error) {
	budget := scanBudget * s.size
	for pos := at.end + 1; ; {
		if pos, err = s.nextCandidate(pos); err != nil || pos < 0 {
			return dropped, err
		}
		b, err := s.view.at(s.src, pos, frameHeaderSize, s.size)
		if err != nil {
			return 0, err
		}
		f, notFrame := parseFrameHeader(b)
		if notFrame != nil || !s.plausible(f.seq, pos) {
			pos++
			continue
		}
		if budget -= int64(f.size()); budget < 0 {
			return 0, corrupt(s.seg.path, at.end, fmt.Errorf("%w: %w", errAmbiguous, bad))
		}
		f, notFrame, err = s.frameAt(pos)
		if err != nil {
			return 0, err
		}
		if notFrame != nil {
			pos++
			continue
		}
		if f.seq <= at.next {
			return 0, corrupt(s.seg.path, at.end, fmt.Errorf("%w (seq %d at position %d): %w", errMisplaced, f.seq, pos, bad))
		}
		if f.group.number != at.expect {
			return 0, corrupt(s.seg.path, at.end, fmt.Errorf("%w (seq %d at position %d): %w", errBehind, f.seq, pos, bad))
		}
		dropped++
		pos += int64(f.size())
	}
}

// nextCandidate is the position of the first frame magic at or after pos, -1 if
// there is none.
func (s *scan) nextCandidate(pos int64) (int64, error) {
	for pos+frameHeaderSize <= s.size {
		b, err := s.view.from(s.src, pos, frameHeaderSize, s.size)
		if err != nil {
			return 0, err
		}
		if i := nextMagic(b); i >= 0 {
			return pos + int64(i), nil
		}
		if len(b) < frameHeaderSize {
			break // the file is shorter than it was listed
		}
		pos += int64(len(b) - len(frameMagic) + 1)
	}
	return -1, nil
}

// plausible reports whether a frame at pos can carry seq: not below the base, as
// frames of the file's earlier use, and not above what fits before pos.
func (s *scan) plausible(seq uint64, pos int64) bool {
	return seq >= s.seg.base && seq-s.seg.base <= uint64(pos)/(frameHeaderSize+1)
}

// unstarted judges a newest segment without a valid header of its name. Ours are
// never without, so this is for files cut to nothing or put back: all zeros, or the
// header of an older use, count as never started, unless frames follow that only
// this use can have written. Anything else is damage.
func (s *scan) unstarted(h segmentHeader, raw []byte, log *slog.Logger) (lastSegment, error) {
	_, valid := decodeHeader(raw)
	stale := valid && h.base < s.seg.base
	if !stale && !zeros(raw) {
		return lastSegment{}, corrupt(s.seg.path, 0, errHeader)
	}
	for pos := int64(0); ; pos++ {
		var err error
		if pos, err = s.nextCandidate(pos); err != nil {
			return lastSegment{}, err
		}
		if pos < 0 {
			break
		}
		b, err := s.view.at(s.src, pos, frameHeaderSize, s.size)
		if err != nil {
			return lastSegment{}, err
		}
		if f, bad := parseFrameHeader(b); bad == nil && s.plausible(f.seq, pos) {
			return lastSegment{}, corrupt(s.seg.path, 0, fmt.Errorf("%w (seq %d at position %d)", errUnsaltedSeq, f.seq, pos))
		}
	}
	log.Warn("ingress WAL: the newest segment was never started; it is made anew", "file", s.seg.path, "header_of_seq", h.base)
	return lastSegment{next: s.seg.base, end: headerSize, group: headerSize}, nil
}

// zeros reports whether b holds nothing but zeros.
func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
