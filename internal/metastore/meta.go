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
}

const (
	fsmMetaVersion = 1
	fsmMetaSize    = 22
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
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeFSMMeta(b []byte) (fsmMeta, error) {
	if len(b) != fsmMetaSize {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta of %d bytes, want %d: %w", len(b), fsmMetaSize, model.ErrCorrupt)
	}
	if b[0] != fsmMetaVersion {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta version %d, want %d: %w", b[0], fsmMetaVersion, model.ErrCorrupt)
	}
	if got, want := crc32.Checksum(b[:18], castagnoli), binary.BigEndian.Uint32(b[18:]); got != want {
		return fsmMeta{}, fmt.Errorf("fsm.db: fsm_meta checksum %08x, stored %08x: %w", got, want, model.ErrCorrupt)
	}
	return fsmMeta{
		newest: EntryType(b[1]),
		index:  binary.BigEndian.Uint64(b[2:]),
		txid:   binary.BigEndian.Uint64(b[10:]),
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
