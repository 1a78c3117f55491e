package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// TmpfsDir returns an empty directory that is a tmpfs of its own, mounted until
// the test ends. Device nodes work in it.
func TmpfsDir(tb testing.TB) string {
	tb.Helper()
	return tmpfsDir(tb, "mode=0700")
}

// SmallTmpfsDir is TmpfsDir with room for so many bytes, to be filled.
func SmallTmpfsDir(tb testing.TB, sizeBytes int64) string {
	tb.Helper()
	return tmpfsDir(tb, fmt.Sprintf("mode=0700,size=%d", sizeBytes))
}

func tmpfsDir(tb testing.TB, options string) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Tmpfs)
	dir := realDir(tb)
	if err := unix.Mount("csiemu-test", dir, "tmpfs", 0, options); err != nil {
		tb.Fatalf("mount tmpfs at %s: %v", dir, err)
	}
	tb.Cleanup(func() { unmount(tb, dir) })
	return dir
}

// xfsBytes is the size of the file system of XFSDir. Only what is written to it
// takes memory.
const xfsBytes = 16 << 30

// XFSDir returns an empty directory that is an XFS of its own, mounted until the
// test ends: files in it share blocks (FICLONE). It has room for 16 GiB, in memory.
func XFSDir(tb testing.TB) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Tmpfs, kernel.XFS)
	image := filepath.Join(TmpfsDir(tb), "xfs.img")
	f, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(xfsBytes); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), "mkfs.xfs", "-q", "-K", "-m", "reflink=1", image).CombinedOutput(); err != nil {
		tb.Fatalf("mkfs.xfs %s: %v: %s", image, err, out)
	}
	device, err := attach(f)
	if err != nil {
		tb.Fatalf("attach %s: %v", image, err)
	}
	defer device.Close() // the mount holds it from here on
	dir := realDir(tb)
	if err := unix.Mount(device.Name(), dir, "xfs", 0, ""); err != nil {
		tb.Fatalf("mount %s at %s: %v", device.Name(), dir, err)
	}
	tb.Cleanup(func() { unmount(tb, dir) })
	return dir
}

// attach binds a file to a free loop device, which frees itself when the device
// is closed and not mounted any more.
func attach(f *os.File) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// Another process may take the free device first; a hundred times in a row
	// it does not.
	for range 100 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		if err := device.Close(); err != nil {
			return nil, err
		}
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure %s: %w", device.Name(), err)
		}
	}
	return nil, errors.New("every free loop device was taken by another process")
}

// realDir is TempDir without symbolic links on the way.
func realDir(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// unmount undoes a mount of this package. One that something still uses is a
// leak of the test; it is detached, so that its directory can go.
func unmount(tb testing.TB, dir string) {
	tb.Helper()
	// Busy for a moment longer: a child that another test is just starting has
	// all files until it calls exec, and the kernel lets go of the backing file
	// of a loop device after the call that asks for it.
	late := time.After(settle)
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
	for waiting := true; waiting && errors.Is(err, unix.EBUSY); {
		select {
		case <-late:
			waiting = false
		case <-again.C:
			err = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
		}
	}
	if err == nil {
		return
	}
	tb.Errorf("unmount %s: %v", dir, err)
	if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		tb.Errorf("detach %s: %v", dir, err)
	}
}
