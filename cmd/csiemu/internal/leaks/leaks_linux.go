package leaks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
)

// namePrefix begins the names that csiemu gives to its devices.
const namePrefix = "csiemu-"

// sourcePrefix begins the source of a tmpfs volume's mount.
const sourcePrefix = "csiemu:"

// Find returns the devices and mounts that csiemu made and that no running
// emulator holds: those whose state directory is gone or not locked.
func Find(ctx context.Context) ([]Leak, error) {
	locked, err := lockedFiles()
	if err != nil {
		return nil, err
	}
	bound, err := devices(ctx)
	if err != nil {
		return nil, err
	}
	mounts, err := mount.ListUnder("/")
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	var leaks []Leak
	for _, d := range bound {
		if !strings.HasPrefix(d.name, namePrefix) {
			continue
		}
		stateDir := stateDirOf(d.backing)
		if stateDir != "" && locked.has(stateDir) {
			continue
		}
		for _, m := range slices.Backward(mounts) {
			if m.Source == d.path {
				leaks = append(leaks, Leak{"mount", m.MountPoint, d.path, stateDir, remedy(stateDir, "umount", m.MountPoint)})
			}
		}
		leaks = append(leaks, Leak{"loop device", d.path, d.backing, stateDir, remedy(stateDir, "losetup -d", d.path)})
	}
	for _, m := range slices.Backward(mounts) {
		if m.FSType != "tmpfs" || !strings.HasPrefix(m.Source, sourcePrefix) {
			continue
		}
		stateDir := stateDirOf(m.MountPoint)
		if stateDir == "" || !locked.has(stateDir) {
			leaks = append(leaks, Leak{"mount", m.MountPoint, m.Source, stateDir, remedy(stateDir, "umount", m.MountPoint)})
		}
	}
	return leaks, nil
}

// Under returns every mount at or below dir, which is clean and absolute, and
// every loop device whose file is there, whoever made them.
func Under(ctx context.Context, dir string) ([]Leak, error) {
	mounts, err := mount.ListUnder(dir)
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	bound, err := devices(ctx)
	if err != nil {
		return nil, err
	}
	var leaks []Leak
	for _, m := range slices.Backward(mounts) {
		leaks = append(leaks, Leak{"mount", m.MountPoint, m.Source, "", remedy("", "umount", m.MountPoint)})
	}
	for _, d := range bound {
		if strings.HasPrefix(d.backing, dir+"/") {
			leaks = append(leaks, Leak{"loop device", d.path, d.backing, "", remedy("", "losetup -d", d.path)})
		}
	}
	return leaks, nil
}

// device is a bound loop device.
type device struct{ path, name, backing string }

func devices(ctx context.Context) ([]device, error) {
	bound, err := loopdev.Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	var all []device
	for _, s := range bound {
		backing, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", s.Index))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue // freed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("find leaks: %w", err)
		}
		all = append(all, device{fmt.Sprintf("/dev/loop%d", s.Index), s.Name, strings.TrimSpace(string(backing))})
	}
	return all, nil
}

// stateDirOf returns the state directory above a path, "" if there is none: the
// outermost directory with the lock that an emulator takes, as nodes have such
// directories inside.
func stateDirOf(path string) (found string) {
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if info, err := os.Stat(filepath.Join(dir, lockName)); err == nil && info.Mode().IsRegular() {
			found = dir
		}
	}
	return found
}
