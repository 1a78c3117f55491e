package kernel

import (
	"fmt"
	"os"
	"strings"
)

// BootID is the identity of this run of the kernel, a UUID: two processes with
// the same boot id share one kernel, whatever containers they are in, and it is
// another one after a reboot (random(4)).
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if len(id) != 36 {
		return "", fmt.Errorf("read boot id: %q is no UUID", id)
	}
	return id, nil
}
