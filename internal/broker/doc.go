// Package broker is this node's data plane: every partition the node owns, opened
// when first needed, and the queue consumers that wait for their records.
//
// # Who holds what
//
// A topic entry stands for one life (incarnation) of a topic name on this node. It
// holds a slot per partition and the consumers parked on the topic. A recreated topic
// gets a new entry; the old one's logs are closed and its consumer state dropped first.
//
// # Locks
//
// In this order, and never in another:
//
//	topic guard     opening and closing logs, the marker check, renames; held across I/O
//	produce lock    (package partition) one commit cycle
//	waiter lock     the parked consumers of a topic, tokens and holds
//	notifier lock   announcements that are due
//	shard lock      (package partition) the lease table
//	map lock        look-up, install and drop of topic entries
//
// The guard belongs to the name, not to the entry: successive lives share it. A commit
// cycle never takes a guard, so a close may wait for a cycle while holding one. The
// waiter, shard and map locks are never held across I/O, except that the first queue
// touch of a partition reads its consumer files.
//
// # Serving consumers
//
// A consume scans the local partitions and parks when they are dry. A parked consumer
// costs one list entry and one timer. Whatever may make a record available (a commit, a
// nack, an expired lease, a freed cap slot) counts up the topic's wake sequence and,
// only if somebody is parked, puts the topic on the pump's list. The pump reserves in
// memory and gives each reservation to exactly one waiter, which reads the record
// itself. No wake is lost between scan and park: a consumer notes the sequence before
// its scan and kicks the pump if it moved by the time the consumer is in the queue.
//
// # Other nodes
//
// Consumers of another node are one token in the same queue, in order of arrival. When its
// turn comes the token is spent, its node is told of one record, and a hold keeps a record
// back from those behind until the node has claimed, passed, or let a second go by. Nothing
// is leased before the claim, so a node that is never heard of again has taken nothing.
// Announcements go out from a few workers, never from the pump.
//
// The other way round a parked consumer can be sent to other nodes (SendWord): it leaves
// the queue, so that it cannot be handed a record here at the same time, and comes back to
// its place when it found nothing. What came here meanwhile it sees in its next scan.
package broker
