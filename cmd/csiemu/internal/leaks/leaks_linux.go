package leaks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
// emulator holds: those whose state directory is gone or not locked. It opens
// each loop device; the error is fs.ErrPermission for who may not.
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
		stateDir := stateDirOf(image(bound, d))
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
// every loop device whose file is there, whoever made them. It opens no device,
// so that anyone may ask.
func Under(ctx context.Context, dir string) ([]Leak, error) {
	mounts, err := mount.ListUnder(dir)
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	bound, err := backings(ctx)
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

// device is a bound loop device; its name may be unknown.
type device struct{ path, name, backing string }

// devices returns the bound loop devices with their names.
func devices(ctx context.Context) ([]device, error) {
	bound, err := loopdev.Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	var all []device
	for _, s := range bound {
		index := strconv.Itoa(s.Index)
		backing, err := backingOf("/sys/block/loop" + index)
		if err != nil {
			return nil, err
		}
		if backing != "" {
			all = append(all, device{"/dev/loop" + index, s.Name, backing})
		}
	}
	return all, nil
}

// backings returns the bound loop devices without their names, which only the
// devices themselves tell.
func backings(ctx context.Context) ([]device, error) {
	shown, err := filepath.Glob("/sys/block/loop[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("find leaks: %w", err)
	}
	var all []device
	for _, dir := range shown {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("find leaks: %w", err)
		}
		backing, err := backingOf(dir)
		if err != nil {
			return nil, err
		}
		if backing != "" {
			all = append(all, device{path: "/dev/" + filepath.Base(dir), backing: backing})
		}
	}
	return all, nil
}

// backingOf returns the path of the file under a loop device, which dir in /sys
// describes, "" if nothing is bound to it, also when it was freed meanwhile.
func backingOf(dir string) (string, error) {
	backing, err := os.ReadFile(filepath.Join(dir, "loop", "backing_file"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find leaks: %w", err)
	}
	return strings.TrimSpace(string(backing)), nil
}

// image returns the file under a device. The read-only device of a block
// publication lies over another loop device, whose file it is then.
func image(bound []device, d device) string {
	for range bound { // no more devices than there are lie over each other
		below := slices.IndexFunc(bound, func(b device) bool { return isNodeOf(d.backing, b.path) })
		if below < 0 {
			break
		}
		d = bound[below]
	}
	return d.backing
}

// isNodeOf reports whether path is the device: in /dev, or as a node elsewhere.
func isNodeOf(path, device string) bool {
	if path == device {
		return true
	}
	if filepath.Base(path) != filepath.Base(device) {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeDevice != 0
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
