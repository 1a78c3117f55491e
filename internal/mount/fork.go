//go:build linux

package mount

import "syscall"

// withoutFork runs a short piece of work that has a descriptor of a mount open,
// at a moment when this process does not fork. A child has copies of all
// descriptors until its exec is done, and would keep the mount busy after we
// closed ours. Nothing that may wait for a file system belongs in work, as all
// forks of the process wait for it.
func withoutFork(work func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return work()
}

// awaitForks returns when no child of this process is on its way to its exec.
// The kernel closes the child's copies of our descriptors just after that.
func awaitForks() {
	_ = withoutFork(func() error { return nil })
}
