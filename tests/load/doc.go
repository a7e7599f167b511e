// Package load holds the node to its resource figures: what parked consumers, idle
// topics and stuck clients cost in processor time, memory and descriptors. The figures
// are counts and sizes of the real process, never speeds, so a slow machine does not
// fail them.
package load
