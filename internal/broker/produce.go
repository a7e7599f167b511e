package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/narad-mq/narad/internal/model"
)

var errPartitionRange = fmt.Errorf("%w: partition out of range", model.ErrInvalid)

// resolveTriesMax bounds how often one request resolves its log again after it found a
// closed one (spec/storage-and-produce section 18.2, spec/consume section 5.2).
const resolveTriesMax = 3

// Commit stores records in a partition this node owns; durable and visible when it
// returns. Records that name an incarnation are refused with ErrIncarnation when the
// topic's is another. ErrNotOwner also covers a log that kept closing under the commit;
// nothing was appended then.
func (b *Broker) Commit(ctx context.Context, name string, partition int, recs []model.Record) (first int64, err error) {
	for range resolveTriesMax {
		t, v, err := b.lookup(name)
		if err != nil {
			return 0, err
		}
		pt, err := b.get(t, v, partition, true)
		if err == nil {
			first, err = pt.Commit(ctx, recs)
		}
		if err == nil {
			t.slot(partition).tail.announce()
		}
		if !errors.Is(err, model.ErrLogClosed) {
			return first, err
		}
	}
	return 0, fmt.Errorf("%w: log of %s/%d keeps closing", model.ErrNotOwner, name, partition)
}
