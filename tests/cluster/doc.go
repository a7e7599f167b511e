// Package cluster drives several nodes of the real binary through the faults a cluster
// must survive, under load, and judges what they did by what their clients were told
// (tests/ledger).
//
// # Nodes and their network
//
// As root on Linux the test process starts itself again in namespaces of its own: for
// the network, mounts and processes. In there every node gets a network namespace with
// one link to the test process, which routes between them. So every node has one address
// that all others use, and a cut is one routing rule: packets from one node to another,
// of all traffic or of one plane, are dropped in silence, in this direction only. The
// host's network is never touched, and when the test process ends, however it ends, the
// kernel removes the nodes, the links and the rules with it.
//
// Elsewhere the nodes share the loopback, on addresses of their own. Kills, pauses,
// restarts and damaged directories work as they do in namespaces; tests that cut skip,
// and say why.
//
// # Writing a test
//
// form starts an initial cluster, join adds nodes, run puts load on all of them. A fault
// is one call (kill, pause, stop, cut, isolate) and is noted in the ledgers until it is
// over. While it lasts, through demands that every node that is up accepts messages; any
// produce that such a node does not answer with 202 is a problem by itself. drain waits
// until everything accepted was delivered and acked, and judges the run.
//
// NARAD_CLUSTER_LONG=1 makes the runs longer: more rounds of every fault, more lives of
// the topic that is deleted and made again.
package cluster
