//go:build !linux

package disk

import "os"

// syncData: os.File.Sync is F_FULLFSYNC on macOS and FlushFileBuffers on Windows.
func syncData(f *os.File) error { return f.Sync() }
