// Package access decides who may do what on a node: grants and their patterns, the
// rights that follow from them, and the check of HTTP Basic credentials with its
// budgets (spec/http-api sections 3 and 4).
//
// A Caller is a user with the rights it has. All rights are pure functions of a
// Caller and what it wants to touch; each returns nil or a model.Forbidden with the
// text of the specification. A Caller that is nil or zero has no right at all; with
// security off the caller is SecurityOff(), which has every right but those of the
// remotes plane. So a Caller that somebody forgot to set refuses, never allows.
//
// The Authenticator turns a header into a Caller:
//
//   - A verified credential is cached as a MAC under a secret of the process, one
//     entry a user, together with the users version it was read at and the bcrypt hash
//     it matched. While the version stands, a request costs one MAC and one map load.
//     When it moved, the user's record is read again: the same hash means the same
//     password, so grants are renewed without bcrypt; another hash, or no record, ends
//     the entry. A change of one user therefore costs the others no bcrypt run.
//   - Everything else is a check: one bcrypt run that all requests with the same
//     credential share. Checks run on verifySlots goroutines, which exist only while
//     there is something to check. Admission comes first, under one lock: a token of the
//     username's bucket, and for a username whose bucket was not full one of the node's
//     failure budget. Tokens are taken before the run and given back by a right password,
//     so that guesses in flight count.
//   - A check that is admitted runs to its end even if every requester left.
//
// What the package does not hide: that a username does not exist is answered without
// bcrypt, hence faster (AUTH-3).
package access
