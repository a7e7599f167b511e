package lease

import "math/rand/v2"

// NewNonces returns a source of unguessable, non-zero 63-bit nonces: a ChaCha8
// stream keyed by seed, which comes from the system's CSPRNG, one per table. A
// nonce is never a counter, so whoever did not receive a message cannot forge its
// handle (spec/consume section 4). The source is not safe for concurrent use.
func NewNonces(seed [32]byte) func() int64 {
	stream := rand.NewChaCha8(seed)
	return func() int64 {
		for {
			if n := int64(stream.Uint64() >> 1); n != 0 {
				return n
			}
		}
	}
}
