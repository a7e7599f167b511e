package model

// ReleaseLevel is what a release knows of peers: entry types and frames. A node
// runs at the newest; tests tell one to act as an older, so that mixed clusters can
// be tested (spec/cluster-and-network, peer levels L0 to L2).
type ReleaseLevel uint8

// The levels. The zero value is the newest.
const (
	LevelNewest ReleaseLevel = iota
	Level30                  // L0: the base entry types, reports no release
	Level31                  // L1: entry types that carry what they were checked against
	Level32                  // L2: remotes
)
