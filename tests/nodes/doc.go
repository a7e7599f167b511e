// Package nodes runs the data planes of several nodes in one process, without sockets
// between them: real brokers, dispatchers, fan-out engines and reclaimers, each node on a
// volume of its own. What a node-RPC client would do calls the other node directly, over
// a link that a test delays, cuts in one direction, or lets lose a reply.
//
// Tests of the data plane share one replica that they change by hand, and run in a bubble
// of fake time, so that budgets of half a minute cost nothing. The staged tests run real
// metastores over real Raft: each is one of the crash-recovery bugs of the founding
// document on cluster lifecycle.
package nodes
