package leaks

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file in a state directory that a running emulator locks.
const lockName = "lock"

// locks are the inodes of the files that a process of this machine has locked
// as a whole. The file system is not compared: what /proc/locks says of it is
// not what stat says on btrfs.
type locks map[uint64]bool

// lockedFiles reads /proc/locks, which takes no lock itself and so never stands
// in the way of an emulator that starts.
func lockedFiles() (locks, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil, fmt.Errorf("find running emulators: %w", err)
	}
	defer f.Close()
	return parseLocks(f)
}

// parseLocks reads lines such as
//
//	1: FLOCK  ADVISORY  WRITE 4242 fe:00:1311 0 EOF
func parseLocks(r io.Reader) (locks, error) {
	held := locks{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		inode := fields[5][strings.LastIndexByte(fields[5], ':')+1:]
		if n, err := strconv.ParseUint(inode, 10, 64); err == nil {
			held[n] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find running emulators: %w", err)
	}
	return held, nil
}

// has reports whether an emulator runs on a state directory.
func (l locks) has(stateDir string) bool {
	info, err := os.Stat(filepath.Join(stateDir, lockName))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && l[stat.Ino]
}
