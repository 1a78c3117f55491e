package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/csiemu/csiemu/internal/mount"
)

// programs are the programs that scripts can run. All but csiemu are csiemu on a
// poorer machine.
func programs() map[string]func() {
	return map[string]func(){
		"csiemu":       main,
		"without-root": withoutRoot,
		// without-loop has an empty /dev.
		"without-loop": func() {
			amongOwnMounts(func() error {
				return syscall.Mount("tmpfs", "/dev", "tmpfs", 0, "size=64k")
			})
		},
		// on-full-disk has a full file system at the directory full.
		"on-full-disk": func() {
			amongOwnMounts(func() error {
				if err := syscall.Mount("tmpfs", "full", "tmpfs", 0, "size=16k"); err != nil {
					return err
				}
				return os.WriteFile("full/ballast", make([]byte, 12<<10), 0o600)
			})
		},
	}
}

// withoutRoot has root's name but none of its power.
func withoutRoot() {
	cmd := exec.Command("csiemu", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // whose death it is
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "take root's power away:", err)
		os.Exit(125)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// amongOwnMounts becomes csiemu in a mount namespace of its own, prepared by
// prepare.
func amongOwnMounts(prepare func() error) {
	err := ownMounts()
	if err == nil {
		err = prepare()
	}
	path, lookErr := exec.LookPath("csiemu")
	if err == nil {
		err = lookErr
	}
	if err == nil {
		err = syscall.Exec(path, append([]string{"csiemu"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "prepare the machine:", err)
	os.Exit(125)
}

// ownMounts gives this thread, which then becomes the process, a mount namespace
// of its own. The copies of other tests' mounts go at once: they would keep
// their volumes in use.
func ownMounts() error {
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	entries, err := mount.ListUnder("/")
	for _, e := range slices.Backward(entries) {
		ofSystem := slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/run"}, func(dir string) bool { return below(dir, e.MountPoint) })
		if !ofSystem && !below(e.MountPoint, here) {
			_ = syscall.Unmount(e.MountPoint, syscall.MNT_DETACH)
		}
	}
	return err
}

// below reports whether path is dir or in it.
func below(dir, path string) bool {
	relative, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(relative)
}
