package main

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryShare of the tightest cgroup limit becomes the Go soft limit, in percent.
const memoryShare = 90

// cgroupBytesMax bounds what is read of a cgroup file.
const cgroupBytesMax = 64 << 10

// setMemoryLimit sets the Go soft memory limit from the cgroup's, unless GOMEMLIMIT
// says anything at all (spec/operations section 2.7).
func setMemoryLimit(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, ok := cgroupLimit("/proc/self/cgroup", "/sys/fs/cgroup")
	if !ok {
		return
	}
	soft := limit / 100 * memoryShare
	debug.SetMemoryLimit(soft)
	log.Info("go memory limit set from the cgroup memory limit (set GOMEMLIMIT to override)", "limit", soft)
}

// cgroupLimit is the smallest memory limit between the process's cgroup and the root,
// in bytes, for cgroup v2 (memory.max) and v1 (memory.limit_in_bytes). False: none.
func cgroupLimit(self, mount string) (int64, bool) {
	b, err := os.ReadFile(self)
	if err != nil || len(b) > cgroupBytesMax {
		return 0, false
	}
	smallest := int64(math.MaxInt64)
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		root, file := mount, "memory.max"
		switch {
		case parts[0] == "0" && parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			root, file = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := filepath.Clean("/" + parts[2]); ; dir = filepath.Dir(dir) {
			smallest = min(smallest, readLimit(filepath.Join(root, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	// v1 spells "unlimited" as a number close to the largest.
	return smallest, smallest < math.MaxInt64/2
}

func readLimit(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64 // "max"
	}
	return n
}
