//go:build linux

package freeze

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ticket is the parent's half of one freeze.
type ticket struct {
	id  uint64
	dir string
	// device is the file system that was mounted at dir.
	device uint64
	// frozen gets the watchdog's answer to the wish to freeze, thawed the one
	// to the wish to thaw: true if it was not frozen until then.
	frozen chan unix.Errno
	thawed chan bool
	// expired is closed when nothing is frozen any more although nobody wished.
	expired chan struct{}
	once    sync.Once
	// lost is closed when the watchdog died and the parent has thawed in its
	// place; err says if that failed.
	lost chan struct{}
	err  error
}

func newTicket(dir string) *ticket {
	return &ticket{
		dir:     dir,
		frozen:  make(chan unix.Errno, 1),
		thawed:  make(chan bool, 1),
		expired: make(chan struct{}),
		lost:    make(chan struct{}),
	}
}

// lend opens the file system for as long as use takes, which must be short: no
// child is forked meanwhile, so that none gets the descriptor.
func (t *ticket) lend(use func(root *os.File) error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	root, device, err := openMounted(t.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t.device = device
	return use(root)
}

func (t *ticket) expire() { t.once.Do(func() { close(t.expired) }) }

// rescue thaws in the place of a watchdog that died. It is not known whether
// anything is frozen.
func (t *ticket) rescue() {
	defer close(t.lost)
	defer t.expire()
	t.err = thawMounted(t.dir, func(device uint64) bool { return device == t.device })
}
