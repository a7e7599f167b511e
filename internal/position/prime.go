package position

import (
	"errors"
	"os"

	"github.com/narad-mq/narad/internal/disk"
)

// prime prepares consumer.ahead for the first write after a start or a forget. The
// newest record may be in the page cache only, and the first window write
// overwrites the other slot, so the file is synced before that.
func (t *Tracked) prime() error {
	if t.file.primed {
		return nil
	}
	t.c.work.primed = true
	dir, err := t.pin()
	if err != nil {
		return err
	}
	err = t.primeIn(dir)
	if err = errors.Join(err, dir.Close()); err != nil {
		t.release()
		return err
	}
	t.file.primed = true
	t.idle()
	return nil
}

func (t *Tracked) primeIn(dir disk.Dir) error {
	f, err := open(dir, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if t.c.room() {
		t.hold(f)
	} else {
		defer f.Close()
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	t.file.fileID = info.ID
	if err := t.named(); err != nil {
		return err
	}
	st, err := readState(dir, "", t.inc)
	if err != nil {
		return err
	}
	t.reportDamage(st)
	anchor := st.newest()
	if err := t.settleFile(f, st, anchor); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		t.file.suspect = true
		return err
	}
	// Always, not only when it was created just now: an earlier process may have
	// died between creating it and syncing the directory.
	if err := dir.Sync(); err != nil {
		return err
	}
	t.file.window = int64(1 - max(anchor, 0))
	t.file.seq = st.seq
	t.file.levelled = st.offset
	t.file.durable = st.offset
	if anchor >= 0 {
		t.file.durable = max(st.offset, st.slots[anchor].pos.Committed)
	}
	return nil
}

// settleFile gives consumer.ahead its full size, in zeros so that it has its place
// on the disk before the disk is full, and writes the newest slot again when an
// earlier sync of it failed: a second sync alone would prove nothing.
func (t *Tracked) settleFile(f disk.File, st *state, anchor int) error {
	if size := max(st.size, 0); size < aheadSize {
		if _, err := f.WriteAt(make([]byte, aheadSize-size), size); err != nil {
			return err
		}
	}
	if !t.file.suspect || anchor < 0 {
		return nil
	}
	st.slots[anchor].encode(&t.c.work.slot)
	_, err := f.WriteAt(t.c.work.slot[:], int64(anchor)*slotSize)
	return err
}

func (t *Tracked) reportDamage(st *state) {
	for _, err := range st.damage {
		t.c.limit.Warn(t.c.opts.Logger, "damage", "consumer position on disk is damaged; its last intact copy is used",
			"topic", t.key.Topic, "partition", t.key.Partition, "err", err)
	}
}
