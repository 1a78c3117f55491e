package kernel

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const rootRemedy = "run as root; in a container, with docker run --privileged or securityContext.privileged"

func probeRoot() error {
	has, err := hasCapability(unix.CAP_SYS_ADMIN)
	if err != nil {
		return missing(Root, rootRemedy, "%v", err)
	}
	if !has {
		return missing(Root, rootRemedy, "no CAP_SYS_ADMIN (user id %d)", os.Geteuid())
	}
	// Root of a user namespace has every capability, but not over devices.
	if data, err := os.ReadFile("/proc/self/uid_map"); err == nil && !isIdentityMap(string(data)) {
		return missing(Root, "run outside of a user namespace: without rootless mode or userns-remap",
			"root only within a user namespace (uid_map %q)", strings.Join(strings.Fields(string(data)), " "))
	}
	return nil
}

// isIdentityMap reports whether a uid_map is that of the first user namespace.
func isIdentityMap(uidMap string) bool {
	fields := strings.Fields(uidMap)
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}

func probeSysResource() error {
	const remedy = "add CAP_SYS_RESOURCE: docker run --cap-add SYS_RESOURCE or --privileged, if the host's root has it"
	has, err := hasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return missing(SysResource, remedy, "%v", err)
	}
	if !has {
		return missing(SysResource, remedy, "no CAP_SYS_RESOURCE")
	}
	return nil
}

// hasCapability asks for a capability of the calling thread's effective set.
func hasCapability(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("get capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}
