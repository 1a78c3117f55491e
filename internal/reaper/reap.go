//go:build linux

package reaper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/rmtree"
)

// Reap frees the loop devices whose files lie below dir, every mount of their file
// systems or nodes wherever it is, everything mounted below dir and its copies
// elsewhere, and removes dir. It goes on after errors.
func Reap(dir string) error {
	loops := loopsOver(dir)
	var errs []error
	for again := true; again; {
		// A mount may cover others of the same place.
		found, err := hangingOn(dir, loops)
		errs, again = append(errs, err), false
		for _, target := range slices.Backward(found) {
			if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
					errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
				}
				continue
			}
			again = true
		}
	}
	for _, index := range loops {
		errs = append(errs, free(index, dir))
	}
	return errors.Join(append(errs, rmtree.Remove(context.Background(), dir))...)
}

// loopsOver are the indexes of the loop devices with files below dir.
func loopsOver(dir string) []int {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // only a pattern can be wrong
	var found []int
	for _, name := range names {
		index, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(name))), "loop"))
		if err == nil && isOver(index, dir) {
			found = append(found, index)
		}
	}
	return found
}

func isOver(index int, dir string) bool {
	file, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", index))
	return err == nil && strings.HasPrefix(string(file), dir+"/")
}

// hangingOn are the places of all mounts that hang on dir, in the order in which
// they were made.
func hangingOn(dir string, loops []int) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := mount.ParseMountInfo(f)
	if err != nil {
		return nil, err
	}
	// A tmpfs below dir is bound elsewhere too.
	ours := map[uint64]bool{}
	for _, e := range all {
		if below(dir, e.MountPoint) && e.FSType == "tmpfs" {
			ours[e.Dev] = true
		}
	}
	for _, index := range loops {
		ours[unix.Mkdev(loopMajor, uint32(index))] = true
	}
	var found []string
	for _, e := range all {
		if below(dir, e.MountPoint) || ours[e.Dev] || isNodeOf(loops, e) {
			found = append(found, e.MountPoint)
		}
	}
	return found, nil
}

const loopMajor = 7 // Documentation/admin-guide/devices.txt

func below(dir, place string) bool { return place == dir || strings.HasPrefix(place, dir+"/") }

// isNodeOf reports whether a mount is that of a device, as that of a btrfs, or of
// its node, as that of a raw block volume.
func isNodeOf(loops []int, e mount.Entry) bool {
	return slices.ContainsFunc(loops, func(index int) bool {
		node := "loop" + strconv.Itoa(index)
		return path.Base(e.Source) == node && path.Dir(e.Source) != "." || path.Base(e.Root) == node
	})
}

// free frees a loop device if its file still lies below dir.
func free(index int, dir string) error {
	if !isOver(index, dir) {
		return nil // freed by its last unmount
	}
	fd, err := unix.Open(fmt.Sprintf("/dev/loop%d", index), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("free loop%d: %w", index, err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("free loop%d: %w", index, err)
	}
	return nil
}
