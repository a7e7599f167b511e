package reclaim

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/narad-mq/narad/internal/disk"
	"github.com/narad-mq/narad/internal/model"
)

// markerMax bounds what is read of a marker file: 16 characters and white space.
const markerMax = 64

// marker reads which incarnation a directory belongs to, "" when it does not say.
func (r *Reclaimer) marker(dir string) (model.Incarnation, error) {
	b, err := disk.ReadFile(r.fs, path.Join(dir, markerName), markerMax)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	id, err := model.ParseIncarnation(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("marker of %s: %w: %w", dir, model.ErrCorrupt, err)
	}
	return id, nil
}
