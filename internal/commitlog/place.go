package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// Names under the data directory (spec/storage-and-produce section 2).
const (
	topicsDir     = "topics"
	markerName    = "incarnation"
	markerMax     = 64 // bytes; a larger marker is damage
	partitionsMax = 100_000
)

// TopicDir is the directory of a topic. A name that is not one path element is
// refused: nothing here reaches outside <data_dir>/topics.
func TopicDir(dataDir, topic string) (string, error) {
	if err := model.PathElement(topic); err != nil {
		return "", err
	}
	return path.Join(dataDir, topicsDir, topic), nil
}

// PartitionDir is the directory of one partition of a topic.
func PartitionDir(dataDir, topic string, p int) (string, error) {
	dir, err := TopicDir(dataDir, topic)
	if err != nil {
		return "", err
	}
	if p < 0 || p >= partitionsMax {
		return "", fmt.Errorf("%w: partition %d of topic %q: want 0 to %d", model.ErrInvalid, p, topic, partitionsMax-1)
	}
	return path.Join(dir, fmt.Sprintf("p%05d", p)), nil
}

// ReadMarker returns the incarnation a topic directory belongs to, "" when it
// carries no marker (spec/storage-and-produce section 3).
func ReadMarker(fsys disk.FS, topicDir string) (model.Incarnation, error) {
	name := path.Join(topicDir, markerName)
	b, err := disk.ReadFile(fsys, name, markerMax)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read incarnation marker: %w", err)
	}
	id, err := model.ParseIncarnation(strings.Trim(string(b), " \t\r\n\v\f"))
	if err != nil {
		return "", fmt.Errorf("%w: marker %s: %w", model.ErrCorrupt, name, err)
	}
	return id, nil
}

// WriteMarker makes a topic directory belong to an incarnation, durably, creating
// the directory if it is missing.
func WriteMarker(fsys disk.FS, topicDir string, id model.Incarnation) error {
	if _, err := model.ParseIncarnation(string(id)); err != nil {
		return fmt.Errorf("write incarnation marker: %w", err)
	}
	if err := disk.MkdirDurable(fsys, topicDir); err != nil {
		return fmt.Errorf("write incarnation marker: %w", err)
	}
	if err := disk.WriteFileAtomic(fsys, path.Join(topicDir, markerName), []byte(id)); err != nil {
		return fmt.Errorf("write incarnation marker: %w", err)
	}
	return nil
}

// SetAside renames a topic directory to <topic>.stale-<old>, with the time in
// nanoseconds appended when that name is taken, and makes the rename durable. It
// removes nothing. Every log of the topic must be closed.
func SetAside(fsys disk.FS, topicDir string, old model.Incarnation, now time.Time) (newPath string, err error) {
	if _, err := model.ParseIncarnation(string(old)); err != nil {
		return "", fmt.Errorf("set aside %s: %w", topicDir, err)
	}
	newPath = topicDir + ".stale-" + string(old)
	if _, err := fsys.Stat(newPath); err == nil {
		newPath = fmt.Sprintf("%s.%d", newPath, now.UnixNano())
		if _, err := fsys.Stat(newPath); !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set aside %s: %s: %w", topicDir, newPath, errors.Join(fs.ErrExist, err))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("set aside %s: %w", topicDir, err)
	}
	if err := fsys.Rename(topicDir, newPath); err != nil {
		return "", fmt.Errorf("set aside: %w", err)
	}
	if err := disk.SyncDir(fsys, path.Dir(topicDir)); err != nil {
		return newPath, fmt.Errorf("set aside %s: %w", topicDir, err)
	}
	return newPath, nil
}
