package ingress

// rerouteChoice returns the partition that takes the records of from: the next
// one of the topic counting up and wrapping that able accepts, never from
// itself (spec/storage-and-produce section 16.4). ok is false when there is none.
func rerouteChoice(from, partitions int, able func(partition int) bool) (to int, ok bool) {
	for i := 1; i < partitions; i++ {
		if p := (from + i) % partitions; able(p) {
			return p, true
		}
	}
	return 0, false
}
