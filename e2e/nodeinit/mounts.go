package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/csiemu/csiemu/internal/mount"
)

// mounts makes the mounts of the node, in its own mount namespace: everything is
// the host's, except for /proc and for the places where the programs of a node
// write.
func mounts(dir string) error {
	// Nothing that is done here may reach the host, not even for a moment.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	if err := letGo(dir); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, at := range []string{"/run", "/var/lib", "/var/log"} {
		if err := syscall.Mount("node", at, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount tmpfs at %s: %w", at, err)
		}
	}
	for _, name := range []string{"kubelet", "containerd"} {
		if err := bind(filepath.Join(dir, name), filepath.Join("/var/lib", name)); err != nil {
			return err
		}
	}
	if err := facade(); err != nil {
		return err
	}
	// Drivers, kubelet and pods must see each other's mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make all mounts shared: %w", err)
	}
	return nil
}

func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", source, target, err)
	}
	return nil
}

// letGo unmounts what this namespace has copied of other people's mounts: a loop
// device would stay busy, and its owner wonder, for as long as the node lives.
// What holds dir stays.
func letGo(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := mount.ParseMountInfo(f)
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(entries) {
		at := e.MountPoint
		foreign := strings.HasPrefix(e.Source, "/dev/loop") || strings.HasPrefix(at, "/tmp/") || strings.HasPrefix(at, "/mnt/")
		if !foreign || strings.HasPrefix(dir+"/", strings.TrimSuffix(at, "/")+"/") {
			continue
		}
		// One that cannot be unmounted is locked or covered; it is kept.
		_ = syscall.Unmount(at, syscall.MNT_DETACH)
	}
	return nil
}

// tunables are the settings of the machine that a kubelet changes as it starts,
// with what it wants.
var tunables = map[string]string{
	"/proc/sys/vm/overcommit_memory":     "1",
	"/proc/sys/vm/panic_on_oom":          "0",
	"/proc/sys/kernel/panic":             "10",
	"/proc/sys/kernel/panic_on_oops":     "1",
	"/proc/sys/kernel/keys/root_maxkeys": "1000000",
	// Bytes for each key: 25 times that.
	"/proc/sys/kernel/keys/root_maxbytes": "25000000",
}

// facade shows the kubelet the settings that it wants, so that it does not change
// those of the machine.
func facade() error {
	for at, value := range tunables {
		face := filepath.Join("/run", strings.ReplaceAll(at, "/", "-"))
		if err := os.WriteFile(face, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(face, at, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", at, err)
		}
	}
	return nil
}
