// Package schema registers, compares and applies the JSON Schemas of topics
// (spec/http-api section 9, spec/metrics section 4). It is pure: no I/O, no
// metastore, no goroutine. The caller keeps the histories and their budgets.
//
// # Registration
//
// Register maps a document (layout.go): where schemas stand, what their references
// mean, nothing from outside of it. The library jsonschema then holds it against the
// meta-schema of its draft. compile.go turns it into a graph of nodes, pattern.go
// bounds what its patterns cost, and paths.go how often one value can meet one
// subschema. What passes can be evaluated in time linear in the payload, with a
// factor the document's size bounds.
//
// # Payloads
//
// A payload is decoded once, into a flat tape of cells that refer to its bytes
// (tape.go, decode.go), and the graph is evaluated over the tape (evaluate.go):
// first for the verdict alone, which allocates next to nothing, and only if that is
// a refusal again for the report. Numbers are decimals, exact at any size
// (decimal.go).
//
// The library could evaluate too, and tests hold this package against it. It does
// not, because it parses numbers anew for every keyword, finds equal items in time a
// sender can make quadratic, reports without a bound, and compiles in quadratic time.
//
// # Versions
//
// Compatible (compatible*.go) walks two documents side by side, keyword by keyword,
// and refuses what it cannot tell. SameMeaning and SameHistory compare documents as
// JSON values.
package schema
