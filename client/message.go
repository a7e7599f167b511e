package client

import (
	"encoding/json"
	"time"
)

// Bounds the server sets to messages and requests.
const (
	MessageBytesMax  = 1 << 20  // payload of one message
	BatchMessagesMax = 1000     // messages of one batch produce
	BatchBytesMax    = 16 << 20 // body of one batch produce, as encoded
	ReceiveMax       = 100      // messages of one Receive, handles of one batch ack
)

// AnyPartition leaves the choice of a partition to the server: by key, or in turn.
const AnyPartition = -1

// Pin ties a request to one partition. The zero Pin ties it to none.
type Pin struct{ next int } // the partition's number plus one

// Partition pins to the partition with number p; AnyPartition pins to none.
func Partition(p int) Pin { return Pin{max(p, AnyPartition) + 1} }

func (p Pin) set() bool { return p.next > 0 }

func (p Pin) number() int { return p.next - 1 }

// Message is one message to produce.
type Message struct {
	Key     []byte // nil or empty = no key
	Payload []byte // 1 byte to MessageBytesMax, stored byte for byte
	Pin     Pin    // the partition to store it in; wins over Key
}

// Delivery is a message handed out: leased (Handle set) or replayed (Handle empty). Its
// Payload and Raw may share the memory of the answer it came in with the messages that
// came with it; copy what is kept for long.
type Delivery struct {
	Topic     string
	Partition int
	Offset    int64
	Key       []byte // nil = no key
	// Payload is the stored bytes, with one exception: a payload that was stored as
	// a JSON string arrives as the string's text, because the two look alike on the
	// wire. Raw tells them apart from other JSON.
	Payload []byte
	// Raw is the payload as the answer carried it: a JSON value.
	Raw json.RawMessage
	// Binary says that Raw is the base64 of the payload: it is neither JSON nor text.
	Binary        bool
	Timestamp     time.Time // commit time, to the second
	Handle        string    // names this lease; "" on a replay
	DeliveryCount int       // 1 for the first delivery by the owner process; 0 on a replay
}
