//go:build linux

package loopdev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// errTaken says that an index belongs to someone else: step to the next.
var errTaken = errors.New("loop device is taken")

const (
	// firstIndex leaves loop0 to loop7, which exist on most machines, to
	// programs that take the lowest free device.
	firstIndex = 8
	// minors is how many minor numbers the loop driver has.
	minors = 1 << 20
)

// indexes decide which loop device is tried next: one that this pool released,
// else one that exists and is free, else a new one. New ones start at a random
// index, so that programs that make devices at once seldom meet.
type indexes struct {
	mu sync.Mutex
	// released are free devices of this pool, the latest last.
	released []int
	// existing are devices that were there when the pool first needed one, in
	// random order; nil and listed false before that.
	existing []int
	listed   bool
	// next is where the next new device is tried, below limit.
	next, limit int
}

func newIndexes(partShift int) indexes {
	limit := minors >> partShift
	return indexes{next: firstIndex + rand.IntN(limit-firstIndex), limit: limit}
}

// give takes back an index that is free. Giving it twice is harmless.
func (x *indexes) give(index int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.released, index) {
		x.released = append(x.released, index)
	}
}

// giveLater takes back an index that will be free some day.
func (x *indexes) giveLater(index int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.listed && !slices.Contains(x.existing, index) {
		x.existing = append([]int{index}, x.existing...)
	}
}

// pop returns the index to try, and whether the device has to be made first.
func (x *indexes) pop() (index int, create bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := len(x.released) - 1; last >= 0 {
		index = x.released[last]
		x.released = x.released[:last]
		return index, false
	}
	if !x.listed {
		x.listed = true
		x.existing = listIndexes(firstIndex)
		rand.Shuffle(len(x.existing), func(i, j int) {
			x.existing[i], x.existing[j] = x.existing[j], x.existing[i]
		})
	}
	for last := len(x.existing) - 1; last >= 0; last-- {
		index = x.existing[last]
		x.existing = x.existing[:last]
		// Asked only now, because devices come and go, and by path, because
		// opening a device of others disturbs them.
		if !hasBackingFile(index) {
			return index, false
		}
	}
	index = x.next
	if x.next++; x.next == x.limit {
		x.next = firstIndex
	}
	return index, true
}

// take returns an index whose device exists and is free as far as is known, and
// whether it was made for that.
func (p *Pool) take() (index int, made bool, err error) {
	index, create := p.indexes.pop()
	if !create {
		return index, false, nil
	}
	err = withFD(p.control, func(control int) error {
		return ioctl(control, unix.LOOP_CTL_ADD, index)
	})
	switch {
	case errors.Is(err, unix.EEXIST):
		return 0, false, errTaken
	case err != nil:
		return 0, false, fmt.Errorf("add loop%d: %w", index, err)
	}
	return index, true, nil
}

// blockDir is where the kernel lists block devices.
const blockDir = "/sys/block"

// listIndexes returns the indexes, from first on, of the loop devices that
// exist. Where the kernel does not tell there are none: the pool makes new ones.
func listIndexes(first int) []int {
	dir, err := os.Open(blockDir)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var found []int
	for _, name := range names {
		number, ok := strings.CutPrefix(name, "loop")
		if !ok {
			continue
		}
		if index, err := strconv.Atoi(number); err == nil && index >= first {
			found = append(found, index)
		}
	}
	return found
}

// exists reports whether the kernel has the device; true where it does not tell.
func exists(index int) bool {
	return unix.Access(filepath.Join(blockDir, nodeName(index)), unix.F_OK) == nil || unix.Access(blockDir, unix.F_OK) != nil
}

// isShown is hasBackingFile where the kernel tells, and true where it does not.
func isShown(index int) bool {
	return hasBackingFile(index) || unix.Access(blockDir, unix.F_OK) != nil
}

// hasBackingFile reports whether the kernel shows the device as bound.
func hasBackingFile(index int) bool {
	path := filepath.Join(blockDir, nodeName(index), "loop", "backing_file")
	return unix.Access(path, unix.F_OK) == nil
}
