package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"runtime"

	"github.com/narad-mq/narad/internal/model"
	"golang.org/x/sync/errgroup"
)

// recoverTopicsMax bounds how many topics are recovered at once.
const recoverTopicsMax = 8

// Recover brings back what was not closed cleanly: every owned partition whose high
// watermark its files do not vouch for is opened, which recovers it. All others stay
// closed until they are used, so a start costs one small read per partition that has
// files and nothing for topics that have none. A partition that cannot be opened is
// skipped with a warning and tried again at its first use. The error is the context's,
// or that of listing the topics.
func (b *Broker) Recover(ctx context.Context, views iter.Seq[*model.TopicView]) error {
	have, err := b.topicDirs()
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(min(recoverTopicsMax, runtime.GOMAXPROCS(0)))
	for v := range views {
		b.owned.set(v.Name, b.countOwned(v))
		if _, ok := have[v.Name]; !ok {
			continue
		}
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return b.recoverTopic(gctx, v) })
	}
	return errors.Join(g.Wait(), ctx.Err())
}

// topicDirs lists the names under <data>/topics.
func (b *Broker) topicDirs() (map[string]struct{}, error) {
	infos, err := b.opts.FS.List(b.topicsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", b.topicsDir, err)
	}
	have := make(map[string]struct{}, len(infos))
	for _, i := range infos {
		if i.IsDir {
			have[i.Name] = struct{}{}
		}
	}
	return have, nil
}

// recoverTopic looks at the owned partitions of a topic that has a directory. Its marker
// is read once: nothing else touches the directory before the start is over.
func (b *Broker) recoverTopic(ctx context.Context, v *model.TopicView) error {
	ours, err := b.holdsFiles(v.Name, v.ID)
	if err != nil {
		b.logger.Warn("topic left closed at startup", "topic", v.Name, "err", err)
	}
	if !ours {
		return nil
	}
	for p := range v.Partitions {
		if err := ctx.Err(); err != nil {
			return err
		}
		if v.OwnerOf(p) != b.opts.Node {
			continue
		}
		if err := b.recoverPartition(v.Name, p); err != nil {
			b.logger.Warn("partition left closed at startup", "topic", v.Name, "partition", p, "err", err)
		}
	}
	return nil
}

func (b *Broker) recoverPartition(name string, p int) error {
	t, v, err := b.lookup(name)
	if err != nil {
		return err
	}
	st, clean, err := b.describeFiles(name, p)
	if err != nil {
		return err
	}
	if clean {
		if s := t.slot(p); s != nil && s.part.Load() == nil {
			s.rest.Store(newResting(st))
		}
		return nil
	}
	_, err = b.get(t, v, p, false)
	if errors.Is(err, errNotOpened) {
		return nil
	}
	return err
}
