package peer

import (
	"context"
	"fmt"
	"net/http"

	"github.com/narad-mq/narad/internal/model"
	"github.com/narad-mq/narad/internal/noderpc"
)

// Committer stores records in the partitions this node owns; see broker.Broker.Commit. It
// keeps the keys and payloads, for the log caches what it wrote.
type Committer interface {
	Commit(ctx context.Context, topic string, partition int, recs []model.Record) (first int64, err error)
}

// recordBytesMin is what a record takes besides key and payload: a byte for the key, its
// time, and the payload's length; lengthBytes precedes a key that is there.
const (
	recordBytesMin = 1 + 8 + 4
	lengthBytes    = 4
	runBytesMin    = 4 + 4
	runBytesMax    = 4 + 4 + 16
)

// CommitSize is what a record takes of CommitBytesMax at most, its share of the runs of
// incarnations included.
func CommitSize(r *model.Record) int {
	n := recordBytesMin + len(r.Payload) + runBytesMax
	if r.Key != nil {
		n += lengthBytes + len(r.Key)
	}
	return n
}

// commitSize is the size of a batch, for CommitBytesMax.
func commitSize(recs []model.Record) int {
	n := 0
	for i := range recs {
		n += CommitSize(&recs[i])
	}
	return n
}

// commitRequest is op 11.
type commitRequest struct {
	topic     string
	partition int
	recs      []model.Record
}

// encode appends the request; the first end bytes are what a release without runs reads.
// Runs are left out when no record names its topic's incarnation.
func (r *commitRequest) encode(e *noderpc.Encoder) (end int, err error) {
	e.AppendStr(r.topic)
	if err := e.AppendPartition(r.partition); err != nil {
		return 0, err
	}
	e.AppendU32(uint32(len(r.recs)))
	named := false
	for i := range r.recs {
		rec := &r.recs[i]
		e.AppendOptBytes(rec.Key)
		e.AppendI64(rec.AcceptedAt)
		e.AppendBytes(rec.Payload)
		named = named || rec.Incarnation != ""
	}
	end = len(*e)
	if named {
		appendRuns(e, r.recs)
	}
	return end, nil
}

// appendRuns appends the incarnations of recs as runs of equal ones.
func appendRuns(e *noderpc.Encoder, recs []model.Record) {
	count := 0
	for i := range recs {
		if i == 0 || recs[i].Incarnation != recs[i-1].Incarnation {
			count++
		}
	}
	e.AppendU32(uint32(count))
	for i := 0; i < len(recs); {
		j := i + 1
		for j < len(recs) && recs[j].Incarnation == recs[i].Incarnation {
			j++
		}
		e.AppendU32(uint32(j - i))
		e.AppendStr(string(recs[i].Incarnation))
		i = j
	}
}

// decodeCommit reads op 11. Keys and payloads belong to the request's body.
func decodeCommit(d *noderpc.Decoder, level model.ReleaseLevel) (r commitRequest, err error) {
	r.topic, r.partition = d.Str(), int(d.I32())
	n := d.Count(recordBytesMin)
	if n > commitRecordsMax {
		return r, fmt.Errorf("%w: commit of %d records, at most %d", model.ErrInvalid, n, commitRecordsMax)
	}
	r.recs = make([]model.Record, n)
	for i := range r.recs {
		r.recs[i] = model.Record{Key: d.OptBytes(), AcceptedAt: d.I64(), Payload: d.Bytes()}
	}
	bad := error(nil)
	if knows(level, featureRuns) && d.More() {
		bad = decodeRuns(d, r.recs)
	}
	if err := d.Done(); err != nil {
		return r, err
	}
	if bad != nil {
		return r, bad
	}
	return r, r.check()
}

// decodeRuns reads the runs of incarnations into recs: one for each record, no more.
func decodeRuns(d *noderpc.Decoder, recs []model.Record) error {
	var bad error
	at := 0
	for range d.Count(runBytesMin) {
		n, id := int64(d.U32()), d.Bytes()
		if bad != nil || d.Err() != nil {
			continue
		}
		if n == 0 || n > int64(len(recs)-at) {
			bad = fmt.Errorf("%w: a run of %d records, %d left", model.ErrInvalid, n, len(recs)-at)
			continue
		}
		incarnation, err := parseLife(string(id))
		if err != nil {
			bad = err
			continue
		}
		for i := range int(n) {
			recs[at+i].Incarnation = incarnation
		}
		at += int(n)
	}
	if bad == nil && at != len(recs) {
		bad = fmt.Errorf("%w: runs of %d records for %d", model.ErrInvalid, at, len(recs))
	}
	return bad
}

// parseLife reads an incarnation, "" being unknown.
func parseLife(s string) (model.Incarnation, error) {
	if s == "" {
		return "", nil
	}
	id, err := model.ParseIncarnation(s)
	if err != nil {
		return "", fmt.Errorf("%w: %w", model.ErrInvalid, err)
	}
	return id, nil
}

// commitRecordsMax bounds the records of one commit; they take memory beyond their bytes.
const commitRecordsMax = 65_536

func (r *commitRequest) check() error {
	if err := topicName(r.topic); err != nil {
		return err
	}
	if r.partition < 0 || len(r.recs) == 0 || len(r.recs) > commitRecordsMax {
		return fmt.Errorf("%w: commit of %d records to partition %d", model.ErrInvalid, len(r.recs), r.partition)
	}
	return nil
}

// Commit has the owner store recs and answers the offset of the first. The records are at
// most CommitBytesMax by CommitSize, or one; more are refused unsent with ErrTooLarge. An
// owner of a release without incarnations gets them without and commits by name
// (spec/cluster-and-network section 8). The errors are those of Committer; after one that
// is neither a *StatusError nor ErrUnreached the records may be stored.
func (c *Client) Commit(ctx context.Context, addr, topic string, partition int, recs []model.Record) (first int64, err error) {
	if n := commitSize(recs); n > CommitBytesMax && len(recs) > 1 {
		return 0, fmt.Errorf("%w: commit of %d records, %d bytes, at most %d", model.ErrTooLarge, len(recs), n, CommitBytesMax)
	}
	r := commitRequest{topic: topic, partition: partition, recs: recs}
	if err := r.check(); err != nil {
		return 0, err
	}
	e := c.encoder()
	defer c.recycle(e)
	end, err := r.encode(e)
	if err != nil {
		return 0, err
	}
	shapes := [...]shape{{featureRuns, len(*e)}, {0, end}}
	fits := shapes[:]
	if end == len(*e) {
		fits = shapes[1:]
	}
	ctx, cancel := context.WithTimeout(ctx, commitBudget)
	defer cancel()
	res, err := accepted(c.narrowing(ctx, addr, noderpc.OpCommitProduceBatch, *e, fits))
	if err != nil {
		return 0, err
	}
	d := noderpc.NewDecoder(res.Body)
	first = d.I64()
	if err := d.Err(); err != nil {
		return 0, fmt.Errorf("%s at %s: answer: %w", noderpc.OpCommitProduceBatch, addr, err)
	}
	return first, nil
}

// ServeCommits serves ops 10 and 11.
func ServeCommits(s Server, level model.ReleaseLevel, d Committer) {
	commit := func(ctx context.Context, r commitRequest) (noderpc.Response, error) {
		own(r.recs)
		first, err := d.Commit(ctx, r.topic, r.partition, r.recs)
		if err != nil {
			return noderpc.Response{}, err
		}
		var e noderpc.Encoder
		e.AppendI64(first)
		return noderpc.Response{Status: http.StatusOK, ContentType: typeBinary, Body: e}, nil
	}
	gate := always(noderpc.GateCommit)
	serve(s, noderpc.OpCommitProduceBatch, gate, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeCommit(d, level)
		if err != nil {
			return noderpc.Response{}, err
		}
		return commit(ctx, r)
	})
	serve(s, noderpc.OpCommitProduce, gate, nil, func(ctx context.Context, d *noderpc.Decoder) (noderpc.Response, error) {
		r, err := decodeCommitOne(d, level)
		if err != nil {
			return noderpc.Response{}, err
		}
		return commit(ctx, r)
	})
}

// own gives records keys and payloads of their own, in one piece of memory: the request's
// body is used again for another one while the log's cache still serves these.
func own(recs []model.Record) {
	size := 0
	for i := range recs {
		size += len(recs[i].Key) + len(recs[i].Payload)
	}
	all := make([]byte, 0, size)
	clone := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		at := len(all)
		all = append(all, b...)
		return all[at:len(all):len(all)]
	}
	for i := range recs {
		recs[i].Key, recs[i].Payload = clone(recs[i].Key), clone(recs[i].Payload)
	}
}

// decodeCommitOne reads op 10: one record. This release sends op 11.
func decodeCommitOne(d *noderpc.Decoder, level model.ReleaseLevel) (r commitRequest, err error) {
	r.topic, r.partition = d.Str(), int(d.I32())
	rec := model.Record{Key: d.OptBytes(), AcceptedAt: d.I64(), Payload: d.Bytes()}
	var id string
	if knows(level, featureRuns) && d.More() {
		id = d.Str()
	}
	if err := d.Done(); err != nil {
		return r, err
	}
	if rec.Incarnation, err = parseLife(id); err != nil {
		return r, err
	}
	r.recs = []model.Record{rec}
	return r, r.check()
}
