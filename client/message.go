package client

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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

// Delivery is a message handed out: leased (Handle set) or replayed (Handle empty).
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

// wireMessage is the message object of the HTTP API.
type wireMessage struct {
	Topic           string          `json:"topic"`
	Partition       int             `json:"partition"`
	Offset          int64           `json:"offset"`
	Key             *string         `json:"key"`
	KeyEncoding     string          `json:"key_encoding"`
	Payload         json.RawMessage `json:"payload"`
	PayloadEncoding string          `json:"payload_encoding"`
	Timestamp       int64           `json:"timestamp"`
	ReceiptHandle   string          `json:"receipt_handle"`
	DeliveryCount   int             `json:"delivery_count"`
}

var errEncoding = errors.New("unknown encoding")

func (w *wireMessage) delivery() (Delivery, error) {
	d := Delivery{
		Topic: w.Topic, Partition: w.Partition, Offset: w.Offset, Raw: w.Payload, Payload: w.Payload,
		Binary: w.PayloadEncoding != "", Timestamp: time.Unix(w.Timestamp, 0), Handle: w.ReceiptHandle, DeliveryCount: w.DeliveryCount,
	}
	var err error
	if w.Key != nil {
		if d.Key, err = decodeText(*w.Key, w.KeyEncoding); err != nil {
			return d, fmt.Errorf("narad client: key of %s/%d@%d: %w", w.Topic, w.Partition, w.Offset, err)
		}
	}
	if len(w.Payload) > 0 && w.Payload[0] == '"' {
		var s string
		if err = json.Unmarshal(w.Payload, &s); err == nil {
			d.Payload, err = decodeText(s, w.PayloadEncoding)
		}
	} else if w.PayloadEncoding != "" {
		err = fmt.Errorf("%w %q of what is no string", errEncoding, w.PayloadEncoding)
	}
	if err != nil {
		return d, fmt.Errorf("narad client: payload of %s/%d@%d: %w", w.Topic, w.Partition, w.Offset, err)
	}
	return d, nil
}

func decodeText(s, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(s), nil
	case "base64":
		return base64.StdEncoding.DecodeString(s)
	}
	return nil, fmt.Errorf("%w %q", errEncoding, encoding)
}
