package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix" //nolint:depguard // package syscall has no setns, and nothing of csiemu itself enters namespaces
)

// kinds are the namespaces that are entered, in this order: behind the last one
// the paths of this process mean something else.
var kinds = []string{"net", "uts", "pid", "mnt"}

// Namespaces are the network, host name, process and mount namespaces of a process, held open.
// Safe for concurrent use.
type Namespaces struct{ files []*os.File }

// Of opens the namespaces of a process.
func Of(pid int) (*Namespaces, error) {
	n := &Namespaces{}
	for _, kind := range kinds {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the %s namespace of process %d: %w", kind, pid, err), n.Close())
		}
		n.files = append(n.files, f)
	}
	return n, nil
}

// Close lets go of the namespaces.
func (n *Namespaces) Close() error {
	var all error
	for _, f := range n.files {
		all = errors.Join(all, f.Close())
	}
	n.files = nil
	return all
}

// enter moves the thread into the namespaces, for good: it must end with its
// goroutine.
func (n *Namespaces) enter() error {
	// A thread that shares its root and working directory cannot change them.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the file system attributes of a thread: %w", err)
	}
	for i, f := range n.files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("enter a %s namespace: %w", kinds[i], err)
		}
	}
	return nil
}
