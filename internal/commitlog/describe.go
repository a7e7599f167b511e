package commitlog

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/narad-mq/narad/internal/disk"
)

// Describe answers for a closed log from its directory, without opening it.
// trusted reports that the boundary is known: the log was closed cleanly, or holds
// no record bytes. When it is not, HighWatermark and NextOffset are only the lower
// bound that the file names give, and opening the log finds the true ones. A
// missing directory is an empty log (spec/storage-and-produce section 7).
func Describe(fsys disk.FS, dir string) (s Stats, trusted bool, err error) {
	segs, err := listSegments(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Stats{}, true, nil
	}
	if err != nil {
		return Stats{}, false, fmt.Errorf("describe partition log: %w", err)
	}
	h, _, err := readHWM(fsys, dir)
	if err != nil {
		return Stats{}, false, fmt.Errorf("describe partition log: %w", err)
	}
	s = statsOf(segs)
	if len(segs) > 0 {
		s.HighWatermark = segs[len(segs)-1].base
	}
	trusted = s.SizeBytes == 0
	if h.valid && (h.value > 0 || s.SizeBytes == 0) {
		trusted = true
		s.HighWatermark = max(s.HighWatermark, h.value)
	}
	s.NextOffset = s.HighWatermark
	return s, trusted, nil
}
