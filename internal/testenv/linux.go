//go:build linux

package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// TmpfsDir returns a directory that is a tmpfs of its own, unmounted when the
// test ends.
func TmpfsDir(tb testing.TB) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Tmpfs)
	dir := tb.TempDir()
	if err := unix.Mount("csiemu-test", dir, "tmpfs", 0, ""); err != nil {
		tb.Fatalf("mount a tmpfs on %s: %v", dir, err)
	}
	tb.Cleanup(func() { unmount(tb, dir) })
	return dir
}

// xfsBytes is the size of XFSDir: sparse, so that it takes what is written.
const xfsBytes = 16 << 30

// XFSDir returns a directory on an xfs of its own, a store with reflink,
// unmounted and freed when the test ends.
func XFSDir(tb testing.TB) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.XFS)
	image, dir := filepath.Join(tb.TempDir(), "xfs"), tb.TempDir()
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(xfsBytes); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), "mkfs.xfs", "-q", "-K", "-m", "reflink=1", image).CombinedOutput(); err != nil {
		tb.Fatalf("mkfs.xfs %s: %v: %s", image, err, out)
	}
	device := bind(tb, f)
	if err := unix.Mount(device.Name(), dir, "xfs", 0, "nouuid"); err != nil {
		_ = device.Close()
		tb.Fatalf("mount %s: %v", device.Name(), err)
	}
	tb.Cleanup(func() {
		unmount(tb, dir)
		// The device frees itself with its last user.
		if err := device.Close(); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// bind gives f a free loop device that goes with its last user.
func bind(tb testing.TB, f *os.File) *os.File {
	tb.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	for {
		index, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			tb.Fatalf("ask for a free loop device: %v", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", index), os.O_RDWR, 0)
		if err != nil {
			tb.Fatal(err)
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device
		}
		_ = device.Close()
		// Somebody else took it in between.
		if !errors.Is(err, unix.EBUSY) {
			tb.Fatalf("bind %s to %s: %v", f.Name(), device.Name(), err)
		}
	}
}

func unmount(tb testing.TB, dir string) {
	tb.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		tb.Errorf("unmount %s: %v", dir, err)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
}

// releaseLimit is how long a device may take to go after its last user: the
// kernel does that in a worker of its own.
const releaseLimit = 5 * time.Second

// kernelLeftovers lists loop devices and mounts over dir.
func kernelLeftovers(ctx context.Context, dir string) []string {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		leaks := append(loopsOver(dir), mountsOver(dir)...)
		if len(leaks) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return leaks
		case <-look.C:
		}
	}
}

func loopsOver(dir string) []string {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var leaks []string
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(backing), dir+"/") {
			leaks = append(leaks, fmt.Sprintf("loop device %s over %s", strings.Split(file, "/")[3], strings.TrimSpace(string(backing))))
		}
	}
	return leaks
}

func mountsOver(dir string) []string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = f.Close() }()
	var leaks []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			leaks = append(leaks, "mount "+fields[4])
		}
	}
	return leaks
}
