package rpc

import (
	"errors"
	"os"
	"syscall"
)

// socketMode is that of every socket: whoever connects has volumes made and
// mounted, or broken.
const socketMode = 0o600

// ownerOnly gives a socket its mode before it has a path. The kernel makes the
// file with the mode of the socket, less the umask (unix_bind_bsd in
// net/unix/af_unix.c), so there is no moment in which others may connect.
func ownerOnly(_, _ string, c syscall.RawConn) error {
	var chmod error
	err := c.Control(func(fd uintptr) { chmod = os.NewSyscallError("fchmod", syscall.Fchmod(int(fd), socketMode)) })
	return errors.Join(err, chmod)
}

// restrict has nothing to do after ownerOnly, unless the umask took bits away that
// the owner needs.
func restrict(path string) error { return os.Chmod(path, socketMode) }
