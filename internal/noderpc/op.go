package noderpc

import "fmt"

// Op is an operation of one node on another. The numbers are stable and only ever
// appended to (spec/cluster-and-network section 5.2).
type Op uint8

// The operations.
const (
	OpProduce               Op = 1
	OpConsume               Op = 2
	OpAck                   Op = 3
	OpCreateTopic           Op = 4
	OpAlterTopic            Op = 5
	OpDeleteTopic           Op = 6
	OpPurgeTopic            Op = 7
	OpTopicPartitionStats   Op = 8
	OpRegisterMember        Op = 9
	OpCommitProduce         Op = 10
	OpCommitProduceBatch    Op = 11
	OpCreateUser            Op = 12
	OpUpdateUser            Op = 13
	OpDeleteUser            Op = 14
	OpAttachChild           Op = 15
	OpDetachChild           Op = 16
	OpFanoutCursors         Op = 17
	OpExtendAck             Op = 18
	OpNack                  Op = 19
	OpGetTopic              Op = 20
	OpJoinCluster           Op = 21
	OpListPartitionSegments Op = 22
	OpFetchSegmentChunk     Op = 23
	OpPrepareHandoff        Op = 24
	OpDecommissionMember    Op = 25
	OpCompleteMove          Op = 26
	OpAbortMove             Op = 27
	OpGetAssignment         Op = 28
	OpAppliedIndex          Op = 29
	OpTokenRegister         Op = 30
	OpTokenNotify           Op = 31
	OpAckBatch              Op = 32
	OpNodeStatus            Op = 33
	OpForgetServer          Op = 34
	OpRemoteWrite           Op = 35
	OpRemoteCheck           Op = 36
)

// opCount is one past the highest operation.
const opCount = 37

// opNames are the metric labels, by operation (spec/metrics, closed list of op).
var opNames = [opCount]string{
	OpProduce: "produce", OpConsume: "consume", OpAck: "ack",
	OpCreateTopic: "create_topic", OpAlterTopic: "alter_topic", OpDeleteTopic: "delete_topic",
	OpPurgeTopic: "purge_topic", OpTopicPartitionStats: "topic_partition_stats",
	OpRegisterMember: "register_member", OpCommitProduce: "commit_produce",
	OpCommitProduceBatch: "commit_produce_batch",
	OpCreateUser:         "create_user", OpUpdateUser: "update_user", OpDeleteUser: "delete_user",
	OpAttachChild: "attach_child", OpDetachChild: "detach_child", OpFanoutCursors: "fanout_cursors",
	OpExtendAck: "extend_ack", OpNack: "nack", OpGetTopic: "get_topic", OpJoinCluster: "join_cluster",
	OpListPartitionSegments: "list_partition_segments", OpFetchSegmentChunk: "fetch_segment_chunk",
	OpPrepareHandoff: "prepare_handoff", OpDecommissionMember: "decommission_member",
	OpCompleteMove: "complete_move", OpAbortMove: "abort_move", OpGetAssignment: "get_assignment",
	OpAppliedIndex: "applied_index", OpTokenRegister: "token_register", OpTokenNotify: "token_notify",
	OpAckBatch: "ack_batch", OpNodeStatus: "node_status", OpForgetServer: "forget_server",
	OpRemoteWrite: "remote_write", OpRemoteCheck: "remote_check",
}

// known reports whether o is an operation of this release.
func (o Op) known() bool { return o > 0 && o < opCount }

// String is the operation's snake-case name, the value of the metric label op.
func (o Op) String() string {
	if !o.known() {
		return fmt.Sprintf("op_%d", uint8(o))
	}
	return opNames[o]
}

// lane is a group of streams of a connection. Requests of one lane never wait behind the
// bytes of another's (spec/cluster-and-network section 3).
type lane uint8

const (
	laneProduce lane = iota
	laneConsume
	laneAck
	laneControl
	laneCount
)

// laneStreams is the number of streams of each lane of a connection.
var laneStreams = [laneCount]int{laneProduce: 16, laneConsume: 16, laneAck: 16, laneControl: 4}

func laneOf(o Op) lane {
	switch o {
	case OpProduce, OpCommitProduce, OpCommitProduceBatch:
		return laneProduce
	case OpConsume:
		return laneConsume
	case OpAck, OpExtendAck, OpNack, OpAckBatch:
		return laneAck
	default:
		return laneControl
	}
}
