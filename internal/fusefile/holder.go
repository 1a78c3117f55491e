//go:build linux

package fusefile

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"os"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/imagefile"
)

// maxBackground is how many requests the kernel sends at once; a loop device has
// at most 128.
const maxBackground = 128

// holder is what the second process does.
type holder struct {
	orders
	image   imagefile.Identity
	conduct *conduct
	users   *users

	stop1 sync.Once
	// stopping is closed when the holder was told to stop.
	stopping chan struct{}
}

// hold serves image until nothing uses it any more after somebody said stop, or
// the mount was taken away. It says over the link when it is ready.
func hold(link *net.UnixConn, image *os.File) error {
	decoder := json.NewDecoder(link)
	h := &holder{users: newUsers(), stopping: make(chan struct{})}
	if err := decoder.Decode(&h.orders); err != nil {
		return err // the parent is gone: nothing was begun
	}
	server, control, err := h.begin(image)
	if err != nil {
		return json.NewEncoder(link).Encode(ready{Error: err.Error(), Errno: errnoIn(err)})
	}
	go h.control(control)
	// A parent that is gone already does not hear it; only one that is tied to
	// it cares.
	_ = json.NewEncoder(link).Encode(ready{})
	if h.Tied {
		go func() {
			_, _ = io.Copy(io.Discard, link)
			_ = h.stop()
		}()
	}
	unmounted := make(chan struct{})
	go func() {
		server.Serve()
		close(unmounted)
	}()
	select {
	case <-unmounted:
	case <-h.users.gone:
	}
	// Whoever starts the next holder waits for the lock, which ends with the
	// process.
	return removeControl(h.Dir)
}

func (h *holder) begin(image *os.File) (_ *fuse.Server, _ *net.UnixListener, err error) {
	if h.image, err = imagefile.IdentityOf(image); err != nil {
		return nil, nil, err
	}
	h.conduct = newConduct(h.Behaviour)
	control, err := listen(h.Dir)
	if err != nil {
		return nil, nil, err
	}
	server, err := fuse.NewServer(newFilesystem(image, h.conduct, h.users), mountPoint(h.Dir), &fuse.MountOptions{
		DirectMountStrict: true,
		FsName:            sourcePrefix + h.VolumeID,
		Name:              subtype,
		MaxWrite:          MaxIOBytes,
		MaxBackground:     maxBackground,
		DisableXAttrs:     true,
		// Without it the kernel does one request after the other, and each
		// waits for the delays of those before it.
		ExtraCapabilities: fuse.CAP_ASYNC_DIO,
		Logger:            log.New(io.Discard, "", 0),
	})
	if err != nil {
		_ = control.Close()
		_ = removeControl(h.Dir)
		return nil, nil, os.NewSyscallError("mount", err)
	}
	return server, control, nil
}

// stop lets everything go on that waits and hides the file. The holder ends when
// nothing has it open any more.
func (h *holder) stop() (err error) {
	h.stop1.Do(func() {
		close(h.stopping)
		h.conduct.drain()
		err = unix.Unmount(mountPoint(h.Dir), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		h.users.expectNone()
	})
	return err
}

// control answers whoever connects.
func (h *holder) control(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go h.converse(conn)
	}
}
