// Package model is the vocabulary every other package speaks: topics and their
// incarnations, assignments, records, messages, receipt handles, settled
// frontiers, and the sentinel errors. It does no I/O and holds no state.
package model
