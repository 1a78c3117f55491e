//go:build linux

package tmpfs

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/mount"
)

// Reopen finds the mounts of an earlier process again, reports volumes and
// snapshots that have none as backends.ErrDataLoss, adopts and frees devices as
// package loop does, and unmounts what is below the store and not explained.
func (b *Backend) Reopen(ctx context.Context, volumes []backends.Held, snapshots []backends.Snapshot, report func(volumeID string, err error)) error {
	explained := map[string]bool{}
	find := func(id, dir string, block bool) bool {
		at := dataDir(dir)
		if block {
			at = blockDir(dir)
		}
		explained[at] = true
		if _, err := device(at); err != nil {
			report(id, fmt.Errorf("reopen %s: %w", id, err))
			return false
		}
		b.keep(at)
		return true
	}
	var blocks []backends.Held
	for _, v := range volumes {
		if find(v.ID, v.Dir, v.Block) && v.Block {
			v.Volume = blockVolume(v.Volume)
			blocks = append(blocks, v)
		}
	}
	var blockSnapshots []backends.Snapshot
	for _, s := range snapshots {
		if find(s.ID, s.Dir, s.Block) && s.Block {
			blockSnapshots = append(blockSnapshots, blockSnapshot(s))
		}
	}
	if err := b.loops.Reopen(ctx, blocks, blockSnapshots, report); err != nil {
		return err
	}
	return b.clearUnexplained(ctx, explained, report)
}

// clearUnexplained unmounts what is ours below the store and not explained:
// where, what and the mark in its source must all agree.
func (b *Backend) clearUnexplained(ctx context.Context, explained map[string]bool, report func(string, error)) error {
	store, err := filepath.EvalSymlinks(b.o.Dir)
	if err != nil {
		return fmt.Errorf("reopen tmpfs store: %w", err)
	}
	all, err := mount.ListUnder(store)
	if err != nil {
		return fmt.Errorf("reopen tmpfs store: %w", err)
	}
	for _, e := range slices.Backward(all) { // what is mounted last comes off first
		below, err := filepath.Rel(store, e.MountPoint)
		if err != nil || e.FSType != fsType || !strings.HasPrefix(e.Source, sourcePrefix) {
			continue
		}
		parts := strings.Split(below, "/")
		if len(parts) != 3 || parts[0] == loop.DamagedDir || !slices.Contains([]string{dataName, unfinishedName, filepath.Base(blockDir(""))}, parts[2]) {
			continue
		}
		dir := filepath.Join(b.o.Dir, below)
		if explained[dir] {
			continue
		}
		if err := b.unmountAt(ctx, dir); err != nil {
			report(parts[1], fmt.Errorf("unmount what no record explains at %s: %w", dir, err))
		}
	}
	return nil
}
