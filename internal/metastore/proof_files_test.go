package metastore

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// copySparse copies a directory that may be in use, as a crash would leave it. bbolt's
// files are mostly holes, and stay that.
func copySparse(t testing.TB, from, to string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since it was listed
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return copyFile(path, filepath.Join(to, rel))
	}))
}

func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, dbMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	chunk, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(src, chunk)
		if n > 0 && !bytes.Equal(chunk[:n], zeros[:n]) {
			if _, err := dst.WriteAt(chunk[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			return dst.Truncate(at)
		}
	}
}

// nothing is a transaction that changes no row, and moves the file's transaction id
// past the one its index was written by.
func nothing(*bbolt.Tx) error { return nil }
