package partition

import (
	"context"
	"fmt"

	"github.com/narad-mq/narad/internal/commitlog"
	"github.com/narad-mq/narad/internal/model"
)

// scratchRecordsKeep bounds the record buffer a partition keeps between cycles.
const scratchRecordsKeep = 1024

// Commit stores recs behind what is stored, durable and visible when it returns, and
// answers the offset of the first; they are consecutive. Concurrent callers share one
// fsync. Errors: ErrNotOwner while a freeze is armed, whatever Options.Gate says,
// ErrIncarnation for records accepted for another life of the topic, the context's
// error when the caller gave up before its records were taken, and what the log says
// (spec/storage-and-produce section 18). An empty batch is a caller's mistake and
// answers ErrInvalid.
func (p *Partition) Commit(ctx context.Context, recs []model.Record) (first int64, err error) {
	if len(recs) == 0 {
		return 0, fmt.Errorf("%w: commit of no records into %s", model.ErrInvalid, p.key)
	}
	return p.combiner.do(ctx, recs)
}

// cycle checks and commits the batches of one run. The combiner calls it under the
// produce lock, which is never released between check and commit.
func (p *Partition) cycle(run []*batch) {
	live, err := p.gate()
	recs := p.scratch[:0]
	now := p.clk.Now().UnixMilli()
	for _, b := range run {
		b.err = err
		if b.err == nil {
			b.err = b.ctx.Err()
		}
		if b.err == nil {
			b.err = p.sameLife(b.recs, live)
		}
		if b.err != nil {
			continue
		}
		b.first = int64(len(recs))
		for i := range b.recs {
			r := &b.recs[i]
			recs = append(recs, commitlog.Record{Key: r.Key, Payload: r.Payload, CommittedAt: now})
		}
	}
	if len(recs) > 0 {
		p.commit(run, recs)
	}
	clear(recs)
	p.scratch = recs[:0]
	if cap(recs) > scratchRecordsKeep {
		p.scratch = nil
	}
}

// commit writes the accepted records as one run and tells each batch its share.
func (p *Partition) commit(run []*batch, recs []commitlog.Record) {
	first, err := p.log.Commit(recs)
	bytes := 0
	for _, b := range run {
		if b.err != nil {
			continue
		}
		if b.err = err; err != nil {
			continue
		}
		b.first += first
		for i := range b.recs {
			bytes += len(b.recs[i].Payload)
		}
	}
	if err == nil {
		p.counters.MessagesProduced.Add(float64(len(recs)))
		p.counters.BytesProduced.Add(float64(bytes))
	}
}

// gate is the check of a whole cycle: no freeze, still the owner. It answers the live
// topic's incarnation.
func (p *Partition) gate() (model.Incarnation, error) {
	if p.frozen() {
		return "", fmt.Errorf("%w: handoff of %s in progress", model.ErrNotOwner, p.key)
	}
	return p.opts.Gate()
}

// sameLife refuses records that were accepted for another life of the topic than the
// live one or the log's.
func (p *Partition) sameLife(recs []model.Record, live model.Incarnation) error {
	for i := range recs {
		id := recs[i].Incarnation
		if id.Differs(live) || id.Differs(p.opts.Incarnation) {
			p.logger.Info("commit produce batch refused: records accepted for another topic incarnation",
				"topic", p.key.Topic, "partition", p.key.Partition, "accepted_for", id, "live", live)
			return fmt.Errorf("%w: accepted for %s, %s is now %s", model.ErrIncarnation, id, p.key.Topic, live)
		}
	}
	return nil
}
