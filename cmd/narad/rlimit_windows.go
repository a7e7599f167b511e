package main

// offsetFiles bounds the descriptors kept for consumer positions.
func offsetFiles() int { return 4096 }
