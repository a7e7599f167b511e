package peer

import (
	"runtime"
	"time"

	"github.com/narad-mq/narad/internal/model"
)

// CommitBytesMax bounds the encoded records of one commit; a caller sends less, or one
// record (spec/cluster-and-network section 5.2).
const CommitBytesMax = 8 << 20

// Bounds of messages.
const (
	repliesMax      = model.ScanMessagesMax // records of one consume, settlements of one AckBatch
	replyBytesMax   = 8 << 20               // encoded records of one consume; the first always goes
	nameBytesMax    = model.TopicNameStoredMax
	addrBytesMax    = 261     // host:port
	buildBytesMax   = 256     // a release as a node reports it
	callerBytesMax  = 1 << 10 // username of who asks for a change
	changeBytesMax  = 2 << 20 // JSON of a metadata change
	jsonBytesMax    = 4 << 20 // JSON of an answer
	refusalBytesMax = 64 << 10
	refusalTextMax  = 4 << 10
	tokensMax       = 1024 // tokens of one frame; more are sent in several
)

// Time budgets of spec/cluster-and-network section 5.3. Each covers dial, stream and the
// repetition for an older peer; a caller may allow less.
const (
	commitBudget   = 30 * time.Second
	settleBudget   = 2 * time.Second // and any wait for a slot
	probeBudget    = 500 * time.Millisecond
	pollMargin     = 2 * time.Second // past the wait of a long poll
	replayBudget   = 5 * time.Second
	statsBudget    = 2 * time.Second
	confirmBudget  = 5 * time.Second // reads behind the leader's barrier
	createBudget   = 75 * time.Second
	changeBudget   = 10 * time.Second
	joinBudget     = 2 * time.Second
	registerBudget = 5 * time.Second
	tokenBudget    = 500 * time.Millisecond
	purgeBudget    = 6 * time.Second // the owner defers after 5 s
	statusBudget   = 2 * time.Second
)

// olderFor is how long a peer that refused a field is sent the older shape.
const olderFor = 2 * time.Minute

// olderMax bounds the peers and shapes remembered.
const olderMax = 4096

// Coalescing of settlements to one owner (spec/cluster-and-network section 6.2).
const (
	coalesceMax    = 64     // settlements of one coalesced AckBatch
	settleQueueMax = 16_384 // settlements that wait for a slot
)

// settleSlots is how many settle requests to one owner are in flight at most.
func settleSlots() int { return max(128, 8*runtime.GOMAXPROCS(0)) }
