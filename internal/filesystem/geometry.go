//go:build linux

package filesystem

// geometry is how a file system divides its device, as far as it decides which
// sizes the file system can have. The zero value has no size at all.
type geometry struct {
	blockBytes int64
	// groupBlocks is the length of an allocation group, 0 where there are none;
	// the first group starts at firstBlock.
	groupBlocks, firstBlock int64
	// minGroupBlocks is the shortest last group that is made: mkfs and growth
	// leave a shorter rest of the device unused. A last group that keeps a
	// backup of the superblock needs backupBlocks more.
	minGroupBlocks, backupBlocks int64
	backups                      backups
}

// backups says which groups keep a copy of the superblock.
type backups int

const (
	backupsNowhere backups = iota
	backupsSparse          // ext's sparse_super: 0, 1 and the powers of 3, 5 and 7
	backupsEverywhere
)

// in reports whether the group keeps a copy.
func (b backups) in(group int64) bool {
	switch {
	case b == backupsEverywhere || group == 0:
		return true
	case b == backupsNowhere:
		return false
	case group == 1:
		return true
	}
	for _, base := range []int64{3, 5, 7} {
		rest := group
		for rest%base == 0 {
			rest /= base
		}
		if rest == 1 {
			return true
		}
	}
	return false
}

// usable is the size, in bytes, that a file system has on a device of so many.
func (g geometry) usable(deviceBytes int64) int64 {
	if g.blockBytes == 0 {
		return 0
	}
	blocks := deviceBytes / g.blockBytes
	if g.groupBlocks == 0 || blocks <= g.firstBlock {
		return blocks * g.blockBytes
	}
	last := (blocks - g.firstBlock) / g.groupBlocks
	rest := (blocks - g.firstBlock) % g.groupBlocks
	shortest := g.minGroupBlocks
	if g.backups.in(last) {
		shortest += g.backupBlocks
	}
	if last > 0 && rest < shortest {
		blocks -= rest
	}
	return blocks * g.blockBytes
}
