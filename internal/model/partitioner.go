package model

// KeyPartition maps a key to one of count partitions (at least 1): FNV-1a, 32 bit,
// unsigned, modulo the count (spec/storage-and-produce section 15.3). Producers and
// fan-out place by the same function, so a key has one partition in a topic.
func KeyPartition(key []byte, count int) int {
	h := uint32(2166136261)
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return int(h % uint32(count))
}
