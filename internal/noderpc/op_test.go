package noderpc

import "testing"

// TestOpNames holds the opcodes to the registry and their names to the metric labels
// (spec/cluster-and-network section 5.2, spec/metrics).
func TestOpNames(t *testing.T) {
	want := []string{1: "produce", "consume", "ack", "create_topic", "alter_topic", "delete_topic", "purge_topic",
		"topic_partition_stats", "register_member", "commit_produce", "commit_produce_batch", "create_user",
		"update_user", "delete_user", "attach_child", "detach_child", "fanout_cursors", "extend_ack", "nack",
		"get_topic", "join_cluster", "list_partition_segments", "fetch_segment_chunk", "prepare_handoff",
		"decommission_member", "complete_move", "abort_move", "get_assignment", "applied_index", "token_register",
		"token_notify", "ack_batch", "node_status", "forget_server", "remote_write", "remote_check"}
	if len(want) != opCount {
		t.Fatalf("%d operations, want %d", opCount-1, len(want)-1)
	}
	for i, name := range want {
		if i > 0 && Op(i).String() != name {
			t.Errorf("op %d is %q, want %q", i, Op(i), name)
		}
	}
	if s := Op(200).String(); s != "op_200" {
		t.Errorf("unknown op is %q", s)
	}
}

func TestLanes(t *testing.T) {
	want := map[Op]lane{1: laneProduce, 10: laneProduce, 11: laneProduce, 2: laneConsume,
		3: laneAck, 18: laneAck, 19: laneAck, 32: laneAck}
	for o := Op(1); o < opCount; o++ {
		l, ok := want[o]
		if !ok {
			l = laneControl
		}
		if laneOf(o) != l {
			t.Errorf("%s is on lane %d, want %d", o, laneOf(o), l)
		}
	}
}
