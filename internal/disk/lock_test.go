package disk

import (
	"errors"
	"path/filepath"
	"testing"
)

// F53: one process at a time.
func TestF53LockIsExclusiveUntilReleased(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	release, err := Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(name); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: got %v, want ErrLocked", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = Lock(name)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
