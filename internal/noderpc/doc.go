// Package noderpc carries requests between nodes, over QUIC: connections, the proof of
// the cluster secret, frames, lanes, cancellation, and the bounds that keep one node's
// trouble from another's memory. It knows the number of an operation and in which lane
// its requests travel, not what they say; the fields of an operation are written and read
// with Encoder and Decoder by the package that owns it.
//
// The rules are those of spec/cluster-and-network sections 3 to 6; the format is in
// DESIGN.md.
package noderpc
