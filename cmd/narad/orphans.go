package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/narad-mq/narad/internal/disk"
)

// refuseOrphans fails if the data directory holds messages. It is asked when there is
// no metadata at all: a cluster started from nothing would know none of the topics,
// take all of them for deleted, and remove them (spec/reliability F27).
func refuseOrphans(fsys disk.FS, dataDir string) error {
	for sub, counts := range map[string]func(disk.Info) bool{
		"topics":          func(i disk.Info) bool { return i.IsDir },
		"ingress/produce": func(i disk.Info) bool { return strings.HasSuffix(i.Name, ".wal") },
	} {
		dir := path.Join(dataDir, sub)
		entries, err := fsys.List(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if counts(e) {
				return fmt.Errorf("%s holds topic data (%s), but there is no metadata beside it: "+
					"restore the metastore directory from a backup, or move topics and ingress away to start empty", dir, e.Name)
			}
		}
	}
	return nil
}
