// Package users manages the users of the API (spec/http-api section 11). It is a
// package of its own beside topics: it shares no rule with it, and topics has its own
// locks and its own retries.
//
// A change has two halves. The Manager runs on the node the client called: it checks
// what the caller and the request alone decide, finds out whether a current password
// is right, and hashes a new one, so that no password travels. The Leader decides:
// Authority on the leader itself, a peer's Authority elsewhere. It trusts the name of
// the caller and nothing else: it reads the caller and the target as they stand, one
// change at a time, checks every rule again and proposes an entry that replaces one
// field. What the Leader refuses reaches the client as it is.
//
// A Seeder makes the first user, the root admin, once in the life of a cluster
// (section 3.1). Its file protocol is described there.
package users
