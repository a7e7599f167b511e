// Package membership is being a member of a cluster. A node finds out whether a cluster
// exists before it starts one (Probe), has itself admitted, asks for its vote, and says
// every 5 s that it lives. A node that leads admits others, decides who gets a vote, and
// removes servers that never became members.
//
// Nothing here trusts an address, a list or a memory to prove membership: a node is
// admitted once its own Raft sees a leader, and the leader believes about a joiner what
// its replica, its configuration and its heartbeats say. DESIGN.md has the states, the
// rules and the test that holds each sentence.
package membership
