package metastore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/narad-mq/narad/internal/model"
)

// fsmMeta is the bookkeeping of fsm.db; see the package comment for its bytes.
type fsmMeta struct {
	newest EntryType // highest entry type ever applied
	index  uint64    // newest Raft entry whose effects are held
	txid   uint64    // bbolt transaction that wrote this value
	rows   uint64    // sum of the rows of all data buckets; see summer
}

const (
	fsmMetaVersion = 2
	fsmMetaSize    = 30
)

var (
	keyApplied = []byte("applied")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func (m fsmMeta) encode() []byte {
	b := make([]byte, 0, fsmMetaSize)
	b = append(b, fsmMetaVersion, byte(m.newest))
	b = binary.BigEndian.AppendUint64(b, m.index)
	b = binary.BigEndian.AppendUint64(b, m.txid)
	b = binary.BigEndian.AppendUint64(b, m.rows)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeFSMMeta(b []byte) (fsmMeta, error) {
	if len(b) != fsmMetaSize {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta of %d bytes, want %d: %w", len(b), fsmMetaSize, model.ErrCorrupt)
	}
	if b[0] != fsmMetaVersion {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta version %d, want %d: %w", b[0], fsmMetaVersion, model.ErrCorrupt)
	}
	if got, want := crc32.Checksum(b[:26], castagnoli), binary.BigEndian.Uint32(b[26:]); got != want {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta checksum %08x, stored %08x: %w", got, want, model.ErrCorrupt)
	}
	return fsmMeta{
		newest: EntryType(b[1]),
		index:  binary.BigEndian.Uint64(b[2:]),
		txid:   binary.BigEndian.Uint64(b[10:]),
		rows:   binary.BigEndian.Uint64(b[18:]),
	}, nil
}

// readFSMMeta reads the bookkeeping; trusted says that nothing but this state
// machine has written the file since. A file without it is {} and not trusted.
func readFSMMeta(tx *bbolt.Tx) (m fsmMeta, trusted bool, err error) {
	bucket := tx.Bucket(bucketMeta)
	if bucket == nil {
		return fsmMeta{}, false, nil
	}
	b := bucket.Get(keyApplied)
	if b == nil {
		return fsmMeta{}, false, nil
	}
	m, err = decodeFSMMeta(b)
	return m, err == nil && m.txid == uint64(tx.ID()), err
}

// writeFSMMeta stores the bookkeeping inside the transaction it describes.
func writeFSMMeta(tx *bbolt.Tx, m fsmMeta) error {
	m.txid = uint64(tx.ID())
	return tx.Bucket(bucketMeta).Put(keyApplied, m.encode())
}

// summer computes sums of rows; its room keeps each of them from allocating.
type summer struct{ lengths [8]byte }

// rowSum is what a row adds to the sum of all rows: its bucket's name and its key,
// each with its length before it, and its value; 0 for no row. The sum tells that a
// row changed, came or went behind the state machine's back, of which bbolt, whose
// pages carry no checksum, knows nothing.
func (s *summer) rowSum(bucket, key, value []byte) uint64 {
	if value == nil {
		return 0
	}
	n := &s.lengths
	binary.BigEndian.PutUint32(n[:], uint32(len(bucket)))
	binary.BigEndian.PutUint32(n[4:], uint32(len(key)))
	sum := crc32.Checksum(n[:], castagnoli)
	for _, b := range [][]byte{bucket, key, value} {
		sum = crc32.Update(sum, castagnoli, b)
	}
	return uint64(sum) + 1<<32 // the upper half counts rows
}

// sumRows adds up every row of the database.
func sumRows(tx *bbolt.Tx) (sum uint64, err error) {
	var s summer
	for _, name := range dataBuckets {
		b := tx.Bucket(name)
		if b == nil {
			continue
		}
		if err := b.ForEach(func(k, v []byte) error {
			sum += s.rowSum(name, k, v)
			return nil
		}); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// errRowsChanged: the rows are not the ones this state machine wrote.
var errRowsChanged = fmt.Errorf("%w: its rows do not add up to the recorded sum; restore the metastore directory from a backup", model.ErrCorrupt)
