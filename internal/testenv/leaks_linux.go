package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leftByKernel lists what the kernel still holds for the tests whose temporary
// directory was dir.
func leftByKernel(dir string) (found []string) {
	for _, l := range loopsBelow(dir) {
		found = append(found, fmt.Sprintf("loop device /dev/%s over %s", l.name, l.file))
	}
	mounts, err := mountsBelow(dir)
	if err != nil {
		found = append(found, fmt.Sprintf("mounts that cannot be looked for: %v", err))
	}
	for _, m := range mounts {
		found = append(found, "mount "+m)
	}
	found = append(found, openFiles(dir)...)
	return append(found, children()...)
}

type loop struct{ name, file string }

// loopsBelow lists the loop devices whose backing file is, or was, below dir.
func loopsBelow(dir string) (found []loop) {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // gone since
		}
		if file := strings.TrimSpace(string(b)); below(dir, file) {
			found = append(found, loop{filepath.Base(filepath.Dir(filepath.Dir(name))), file})
		}
	}
	return found
}

// mountsBelow lists the mount points below dir in the order of mounting.
func mountsBelow(dir string) (found []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// The fifth field is the mount point: proc_pid_mountinfo(5).
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			if point := unescape(fields[4]); below(dir, point) {
				found = append(found, point)
			}
		}
	}
	return found, lines.Err()
}

// unescape undoes the kernel's octal escapes of space, tab, newline and
// backslash.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// openFiles lists this process's open files below dir and its open loop
// devices.
func openFiles(dir string) (found []string) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		if name, err := os.Readlink(fd); err == nil && (below(dir, name) || strings.HasPrefix(name, "/dev/loop")) {
			found = append(found, fmt.Sprintf("open file %s (descriptor %s)", name, filepath.Base(fd)))
		}
	}
	return found
}

// children lists the processes that this one started and did not wait for.
func children() (found []string) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // the thread is gone, or the kernel has no such file
		}
		for _, pid := range strings.Fields(string(b)) {
			command, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			found = append(found, fmt.Sprintf("process %s %q", pid, bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// below says whether path is dir or in it.
func below(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// isMount says whether something is mounted at path.
func isMount(path string) bool {
	var x unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &x)
	return err == nil && x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// undo takes away what is left below dir, and dir.
func undo(dir string) error {
	var errs []error
	loops := loopsBelow(dir) // the path of a file cannot be told once its mount is gone
	mounts, err := mountsBelow(dir)
	errs = append(errs, err)
	for _, point := range slices.Backward(mounts) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
		}
	}
	for _, l := range loops {
		errs = append(errs, clearLoop("/dev/"+l.name))
	}
	if left, err := mountsBelow(dir); err != nil || len(left) > 0 {
		// Removing the files of what is mounted there would be worse.
		return errors.Join(append(errs, err, fmt.Errorf("leave %s: %d mounts are in it", dir, len(left)))...)
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

// clearLoop takes the backing file from a loop device; one that has none is
// fine.
func clearLoop(device string) error {
	f, err := os.Open(device)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("clear loop device %s: %w", device, err)
	}
	return nil
}
