//go:build linux

package freeze

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// What the parent and its watchdog say to each other. Each message is one
// packet.
const (
	// opFreeze asks to freeze the file system whose descriptor comes with it;
	// value is the limit in nanoseconds. It is answered with opFrozen, whose
	// value is the error number, 0 for none.
	opFreeze = byte(iota + 1)
	opFrozen
	// opThaw asks to thaw, or not to freeze any more. It follows each opFreeze,
	// even if that failed, and is answered with opThawed when the descriptor is
	// closed. Its value is 0 if the file system was frozen until then.
	opThaw
	opThawed
	// opExpired says that the limit passed, the file system is thawed and the
	// descriptor closed.
	opExpired
)

type message struct {
	op    byte
	id    uint64
	value int64
}

const messageBytes = 1 + 8 + 8

// send sends m, with a descriptor if file is not nil. It may be called
// concurrently.
func send(conn *net.UnixConn, m message, file *os.File) error {
	p := make([]byte, 0, messageBytes)
	p = append(p, m.op)
	p = binary.LittleEndian.AppendUint64(p, m.id)
	p = binary.LittleEndian.AppendUint64(p, uint64(m.value))
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	_, _, err := conn.WriteMsgUnix(p, rights, nil)
	return err
}

// receive returns the next message and the descriptor that came with it, nil if
// none did. io.EOF is returned when the other side is gone.
func receive(conn *net.UnixConn) (message, *os.File, error) {
	p := make([]byte, messageBytes)
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(p, oob)
	if err != nil {
		return message{}, nil, err
	}
	file, err := descriptorIn(oob[:oobn])
	if err != nil {
		return message{}, nil, err
	}
	if n != messageBytes {
		return message{}, file, fmt.Errorf("message of %d bytes, not %d", n, messageBytes)
	}
	return message{
		op:    p[0],
		id:    binary.LittleEndian.Uint64(p[1:]),
		value: int64(binary.LittleEndian.Uint64(p[9:])),
	}, file, nil
}

func descriptorIn(oob []byte) (*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err == nil && len(fds) == 1 { // there is room for one
			return os.NewFile(uintptr(fds[0]), "frozen"), nil
		}
	}
	return nil, nil
}
