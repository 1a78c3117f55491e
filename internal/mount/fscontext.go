//go:build linux

package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// An fsContext is the kernel's file system context: the parameters of a mount to
// be, and a log of what was wrong with them. Once the file system is made it
// keeps that alive, and so does every copy of it.
type fsContext struct {
	fd    int
	forks forkWatch
}

// newContext takes the context that open (fsopen or fspick) opens.
func newContext(open func() (int, error)) (c fsContext, err error) {
	err = withoutFork(func() (err error) {
		if c.fd, err = open(); err != nil {
			return err
		}
		if c.forks, err = watchForks(c.fd); err != nil {
			_ = unix.Close(c.fd)
		}
		return err
	})
	return c, err
}

// openContext opens a context for a new file system.
func openContext(fsType string) (fsContext, error) {
	c, err := newContext(func() (int, error) { return unix.Fsopen(fsType, unix.FSOPEN_CLOEXEC) })
	switch {
	case errors.Is(err, unix.ENODEV):
		return fsContext{}, &kernel.NotSupportedError{
			Feature: kernel.Feature(fsType),
			Reason:  "the kernel knows no such file system",
			Remedy:  "load its module, or use a type listed in /proc/filesystems",
		}
	case err != nil:
		return fsContext{}, fmt.Errorf("open context of file system %q: %w", fsType, classified(unlessMissing(err, kernel.FSMount)))
	}
	return c, nil
}

// close closes the context. The file system goes now unless it is mounted, or
// when the last child has closed its copy.
func (c fsContext) close() {
	_ = unix.Close(c.fd)
	c.forks.abandon()
}

// closeMounted closes the context of a file system that is mounted, when no child
// has a copy any more: who unmounts it then is the last that holds it.
func (c fsContext) closeMounted() {
	_ = withoutFork(func() error {
		c.forks.await()
		return unix.Close(c.fd) // lets go of one of several: nothing is written
	})
}

// closeUnmounted closes the context that is all that holds its file system. It
// returns when the file system is written out and gone, unless a child was forked
// in the last instant.
func (c fsContext) closeUnmounted() {
	_ = withoutFork(func() error {
		c.forks.await()
		return nil
	})
	_ = unix.Close(c.fd) // may wait for the device, so forks are let go first
}

// create makes the file system of source with the options.
func (c fsContext) create(source string, o Options) error {
	if filepath.IsAbs(source) && len(source) > maxOptionBytes {
		// Too long for fsconfig: the kernel finds it by descriptor.
		fd, err := openat2(unix.AT_FDCWD, source, unix.O_PATH)
		if err != nil {
			return fmt.Errorf("open source: %w", pathError(err))
		}
		defer unix.Close(fd)
		source = descriptorPath(fd)
	}
	if err := unix.FsconfigSetString(c.fd, "source", source); err != nil {
		return fmt.Errorf("set source: %w", c.failure(err))
	}
	if o.ReadOnly() {
		if err := unix.FsconfigSetFlag(c.fd, "ro"); err != nil {
			return fmt.Errorf("make file system read-only: %w", c.failure(err))
		}
	}
	for _, p := range o.parameters() {
		if err := c.set(p); err != nil {
			return err
		}
	}
	// Not repeated when interrupted: a context that failed stays failed.
	if err := unix.FsconfigCreate(c.fd); err != nil {
		return classified(c.failure(err))
	}
	return nil
}

func (c fsContext) set(p entry) (err error) {
	if p.valued {
		err = unix.FsconfigSetString(c.fd, p.key, p.value)
	} else {
		err = unix.FsconfigSetFlag(c.fd, p.key)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("set option %q: %w: %w", p.key, c.failure(err), backends.ErrInvalid)
	}
	return fmt.Errorf("set option %q: %w", p.key, classified(c.failure(err)))
}

// mount makes a mount of the created file system that nobody sees yet, with the
// attributes among the options. It goes when the descriptor is closed, unless it
// was moved to a target.
func (c fsContext) mount(o Options) (int, error) {
	attributes, _ := o.attributeBits()
	fd, err := unix.Fsmount(c.fd, unix.FSMOUNT_CLOEXEC, int(attributes))
	if err != nil {
		return -1, fmt.Errorf("make mount: %w", classified(c.failure(err)))
	}
	return fd, nil
}

// failure puts the kernel's own words, if it left any in the log, before err.
func (c fsContext) failure(err error) error {
	if words := c.words(); words != "" {
		return fmt.Errorf("%s: %w", words, err)
	}
	return err
}

// words takes the errors out of the context's log, or else the warnings. Each
// read gives one message behind its level: "e ext4: Unknown parameter 'foo'".
func (c fsContext) words() string {
	var severe, mild []string
	message := make([]byte, 4096)
	for {
		n, err := unix.Read(c.fd, message)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 { // ENODATA: all was read
			break
		}
		level, text, _ := strings.Cut(strings.TrimSpace(string(message[:n])), " ")
		switch level {
		case "e":
			severe = append(severe, text)
		case "w":
			mild = append(mild, text)
		}
	}
	if len(severe) > 0 {
		return strings.Join(severe, "; ")
	}
	return strings.Join(mild, "; ")
}
