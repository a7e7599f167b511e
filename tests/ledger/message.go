package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Message is what the tests produce: an id and a body that follows from it, so that a
// delivered body proves which message it is, and that all of it is there.
type Message struct {
	ID   string `json:"id"`
	Body string `json:"body"`
}

// BodyMin is the body, in bytes, of a message whose size does not matter.
const BodyMin = 65

// Payload is the message with this id, with a body of size bytes, as it is sent.
func Payload(id string, size int) []byte {
	return []byte(`{"id":"` + id + `","body":"` + Body(id, size) + `"}`)
}

// Body repeats a hash of the id. The period, 65 bytes, divides no sector or page, so
// that a piece in the wrong place shows.
func Body(id string, size int) string {
	sum := sha256.Sum256([]byte(id))
	period := hex.EncodeToString(sum[:]) + "-"
	return strings.Repeat(period, size/len(period)+1)[:size]
}
