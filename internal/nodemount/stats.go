//go:build linux

package nodemount

import (
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
)

// Stats are the figures of the file system mounted at path.
func Stats(path string) (backends.Stats, error) {
	u, err := mount.StatFS(path)
	if err != nil {
		return backends.Stats{}, err
	}
	return backends.Stats{
		TotalBytes: u.Total, AvailableBytes: u.Avail, UsedBytes: u.Used,
		TotalInodes: u.Inodes, AvailableInodes: u.InodesFree, UsedInodes: u.InodesUsed,
	}, nil
}
