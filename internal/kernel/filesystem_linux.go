package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// probeFilesystem asks for a file system that must be mounted and made.
func probeFilesystem(f Feature, mkfs, pkg string) error {
	if err := probeFilesystemType(f); err != nil {
		return err
	}
	if _, err := exec.LookPath(mkfs); err != nil {
		return missing(f, "install "+pkg+", and have /usr/sbin in PATH", "%s not found in PATH", mkfs)
	}
	return nil
}

// probeFilesystemType asks for the file system named like the feature. fsopen is
// asked first, because it loads the module as a mount would; the list of
// registered types answers where fsopen is missing or not allowed.
func probeFilesystemType(f Feature) error {
	fd, err := unix.Fsopen(string(f), unix.FSOPEN_CLOEXEC)
	if err == nil {
		return unix.Close(fd)
	}
	if errors.Is(err, unix.ENODEV) {
		return missing(f, "modprobe "+string(f)+" on the host", "the kernel has no file system %s", f)
	}
	registered, listErr := isRegistered(string(f))
	if listErr != nil {
		return missing(f, "mount /proc", "%v", listErr)
	}
	if !registered {
		return missing(f, "modprobe "+string(f)+" on the host", "the kernel has no file system %s loaded", f)
	}
	return nil
}

// isRegistered looks for a type in /proc/filesystems.
func isRegistered(fsType string) (bool, error) {
	data, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return false, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 0 && fields[len(fields)-1] == fsType {
			return true, nil
		}
	}
	return false, nil
}

func probeBtrfsTempFSID() error {
	if err := probeFilesystemType(Btrfs); err != nil {
		return missing(BtrfsTempFSID, "modprobe btrfs on the host", "the kernel has no btrfs")
	}
	if _, err := os.Stat("/sys/fs/btrfs/features/temp_fsid"); err != nil {
		return missing(BtrfsTempFSID, "needs Linux 6.7 or newer", "%v", err)
	}
	return nil
}

// probeSELinux goes by selinuxfs, which is registered only while SELinux is on
// (as libselinux does where selinuxfs is not mounted).
func probeSELinux() error {
	const remedy = "boot with selinux=1 on a distribution with SELinux, if labels are to be tested"
	registered, err := isRegistered("selinuxfs")
	if err != nil {
		return missing(SELinux, "mount /proc", "%v", err)
	}
	if !registered {
		return missing(SELinux, remedy, "SELinux is off")
	}
	return nil
}
