//go:build linux

package fusefile_test

import (
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// run runs this executable once more.
func run(t *testing.T, environment []string, args ...string) (string, error) {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable, args...)
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// aligned is a buffer that direct I/O takes.
func aligned(size int) []byte {
	b := make([]byte, size+4096)
	skip := 4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)
	return b[skip : skip+size]
}
