//go:build linux

package mount

import "syscall"

// withoutFork runs a short piece of work that has a descriptor of a mount open,
// at a moment when no child of this process is between fork and exec. Such a
// child has copies of all descriptors until its exec is done, whatever
// O_CLOEXEC says, and would keep the mount busy after we closed ours: an
// Unmount that follows would fail for no reason that the caller can see. Nothing
// that may wait for a file system belongs in work, as all forks wait for it.
func withoutFork(work func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return work()
}
