//go:build !linux

package rpc

import (
	"os"
	"runtime"
	"syscall"
)

// socketMode is that of every socket: whoever connects has volumes made and
// mounted, or broken.
const socketMode = 0o600

// ownerOnly does nothing: here a socket has no mode before it has a path.
func ownerOnly(string, string, syscall.RawConn) error { return nil }

// restrict gives a socket its mode. Until then the umask says who may connect.
// Windows has no modes.
func restrict(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return os.Chmod(path, socketMode)
}
