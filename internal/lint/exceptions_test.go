package lint

// Every list below maps a place that may break a rule to the reason why. Keep them
// short: an entry nothing needs any more fails the test.

// longFiles are the product files of more than 400 lines (never more than 800).
var longFiles = map[string]string{}

// packageVars are package variables of internal packages that are neither error
// sentinels, metric buckets, regular expressions, checksum tables nor tables that
// are never written: "directory.name".
var packageVars = map[string]string{
	"internal/metastore.volume":   "disk.OS has no fields; bbolt and raft open real files themselves",
	"internal/httpapi.openAPI":    "an embedded file",
	"internal/peer.ErrUnreached":  "the transport's sentinel by the name floors above know it by",
	"internal/testutil.buildOnce": "one build of the binary per test process, however many tests use it",
}

// sleeps are the files that call time.Sleep outside a synctest bubble.
var sleeps = map[string]string{}

// wallClocks are the files outside internal/clock, cmd, client, bench and tests that
// read the time or make timers.
var wallClocks = map[string]string{}

// fileUsers are the files outside the packages of filePackages that call package os
// for files.
var fileUsers = map[string]string{}

// removers are the files outside internal/reclaim and tests that call os.RemoveAll.
var removers = map[string]string{
	"cmd/narad/cluster_dev.go": "a scratch directory it made itself, of nodes it ran itself",
}
