// Package peer is what nodes say to each other: one message type per operation, a Client
// that sends them and turns answers back into the errors of package model, and functions
// that serve them from the parts of a node. Package noderpc carries the bytes.
//
// A refusal crosses as a status, a stable code and the text that a client of the HTTP API
// would have read from the owner itself, so that it can be passed on unchanged; see
// StatusError. Peers of older releases get requests in the shape they know; see shape.
// The fields of every message are in DESIGN.md; the rules are those of
// spec/cluster-and-network sections 5 to 8.
package peer
