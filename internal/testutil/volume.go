package testutil

import (
	"os/exec"
	"strconv"
	"testing"
)

// SmallVolume mounts a file system of its own, of so many bytes, on the directory for
// as long as the test runs.
func SmallVolume(t testing.TB, dir string, bytes int64) {
	t.Helper()
	NeedRoot(t)
	mount(t, dir, "-t", "tmpfs", "-o", "size="+strconv.FormatInt(bytes, 10)+",mode=0700", "tmpfs", dir)
}

// ReadOnly makes the directory read-only, for root as well, until the returned
// function or the end of the test.
func ReadOnly(t testing.TB, dir string) (release func()) {
	t.Helper()
	NeedRoot(t)
	release = mount(t, dir, "--bind", dir, dir)
	if out, err := exec.Command("mount", "-o", "remount,ro,bind", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot remount read-only here: %v: %s", err, out)
	}
	return release
}

func mount(t testing.TB, dir string, args ...string) (unmount func()) {
	t.Helper()
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		t.Skipf("cannot mount here: %v: %s", err, out)
	}
	done := false
	unmount = func() {
		if done {
			return
		}
		done = true
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	}
	t.Cleanup(unmount)
	return unmount
}
