// Package leaks finds the loop devices and mounts that csiemu made and that no
// running emulator has any more.
package leaks

import (
	"fmt"
)

// Leak is a loop device or mount of csiemu's without an emulator that would
// know of it.
type Leak struct {
	// Kind is "loop device" or "mount".
	Kind string `json:"kind"`
	// Name is the device or the mount point.
	Name string `json:"name"`
	// Of is what it belongs to: the file under a device, the source of a mount.
	Of string `json:"of"`
	// StateDir is the state directory whose next emulator takes it over; empty
	// if there is none any more.
	StateDir string `json:"stateDir,omitempty"`
	// Remedy is what to type.
	Remedy string `json:"remedy"`
}

// String says it in a line.
func (l Leak) String() string { return fmt.Sprintf("%s %s of %s", l.Kind, l.Name, l.Of) }

// remedy is what to do about a leak: its state directory's next emulator, if
// there is one, knows whether it is in use.
func remedy(stateDir, command, name string) string {
	if stateDir != "" {
		return fmt.Sprintf("csiemu serve --state-dir %s takes it over, or %s %s", stateDir, command, name)
	}
	return command + " " + name
}
