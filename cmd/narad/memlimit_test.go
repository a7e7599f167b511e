package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimitIsTheTightestOnTheWay(t *testing.T) {
	write := func(t *testing.T, name, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, self string
		files      map[string]string
		want       int64
		ok         bool
	}{
		{"v2 leaf", "0::/a/b\n", map[string]string{"a/b/memory.max": "1000\n", "a/memory.max": "max\n"}, 1000, true},
		{"v2 parent is tighter", "0::/a/b\n", map[string]string{"a/b/memory.max": "1000\n", "a/memory.max": "500\n"}, 500, true},
		{"v2 unlimited", "0::/a\n", map[string]string{"a/memory.max": "max\n"}, 0, false},
		{"v1", "5:cpu:/x\n4:memory:/c\n", map[string]string{"memory/c/memory.limit_in_bytes": "2048\n"}, 2048, true},
		{"v1 unlimited", "4:memory:/c\n", map[string]string{"memory/c/memory.limit_in_bytes": "9223372036854771712\n"}, 0, false},
		{"garbage", "hello\n::\n", nil, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "self"), tc.self)
			for f, c := range tc.files {
				write(t, filepath.Join(dir, "cg", f), c)
			}
			got, ok := cgroupLimit(filepath.Join(dir, "self"), filepath.Join(dir, "cg"))
			if ok != tc.ok || ok && got != tc.want {
				t.Fatalf("got %d, %v; want %d, %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}
