//go:build !linux

package emulator_test

// backendCases are all backends of this system.
func backendCases() []backendCase { return []backendCase{memoryCase()} }

// runAsService is for systems where a driver can be several processes.
func runAsService() bool { return false }
