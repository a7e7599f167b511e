package schema

import "time"

// Bounds of spec/http-api LIM-14, LIM-15 and section 9. The caller that appends to
// histories applies the three budgets; the package applies the rest.
const (
	// VersionsMax is the most versions the history of a topic holds.
	VersionsMax = 1000
	// TopicBytesMax is the budget of one topic's history, in bytes as stored.
	TopicBytesMax = 4 << 20
	// ClusterBytesMax is the budget of all histories of a cluster, in bytes as
	// stored, the copy of each child counted.
	ClusterBytesMax = 256 << 20
	// DocumentBytesMax is the size of one document, in bytes as sent.
	DocumentBytesMax = 256 << 10
	// NestingMax is how deep a document may nest.
	NestingMax = 64
	// PayloadNestingMax is how deep a payload on a topic with a schema may nest.
	PayloadNestingMax = 256
)

// exponentMax bounds the exponent of a number, either way (SR-6, SV-4).
const exponentMax = 1000

// Bounds on what one document may cost.
const (
	pathsMax       = 64      // paths by which one value reaches one subschema (SR-8)
	patternStepMax = 32      // matcher steps per input byte (SR-5)
	inPlaceMax     = 256     // subschemas stacked on one value: bounds the stack of an evaluation
	pathsWork      = 1 << 22 // units of work the path analysis may spend on a document
	patternWork    = 1 << 19 // units of work the analysis of one pattern may spend
	patternSizeMax = 1 << 18 // instructions all patterns of a document compile to, repetitions written out
	patternsWork   = 1 << 23 // and of all patterns of a document
	compareWork    = 1 << 20 // units of work one comparison of versions may spend
)

// When a schema counts as costly (SV-9).
const (
	costlyRequired = 1024 // names in required, dependentRequired and dependencies
	costlyPatterns = 64   // patternProperties keys
	costlyOnValue  = 64   // subschemas on one value
)

// Bounds on checking payloads.
const (
	freePayloadMax = 16 << 10        // payloads up to this size need no slot unless the schema is costly (SV-9)
	slotWait       = 5 * time.Second // longest wait for a slot (SV-9)
	enumHashMin    = 16              // enum values from which on the lookup is by hash (SV-7)
	reportMax      = 2 << 10         // bytes of a report (SV-8)
	reportWorkMax  = 32 << 20        // bytes of all lines of a full report (SV-8)
)
