package scale_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// TestNoCallLooksAtForeignVolumes makes the calls of lives beside many volumes in
// use, and counts what the process reads and which of their devices it opens: no
// call may read a table of all mounts, or ask all devices. It is not parallel:
// what is read is counted for the process.
func TestNoCallLooksAtForeignVolumes(t *testing.T) {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	const few, all = 10, 300
	store := testenv.TmpfsDir(t)
	backend, err := loop.New(loop.Options{Dir: store, Autoclear: true})
	require.NoError(t, err)
	d := start(t, backend, store)
	beside := d.use(t, 0, few)
	for _, fsType := range []string{"ext4", block} {
		d.measure(t, fsType, newWatch(t, nil)) // first uses
	}
	base := map[string]map[string]footprint{}
	for _, fsType := range []string{"ext4", block} {
		base[fsType] = d.measure(t, fsType, newWatch(t, beside))
	}
	beside = append(beside, d.use(t, few, all)...)
	w := newWatch(t, beside)
	seen := w.during(func() { requireSeen(t, beside) })
	// A line of mountinfo has more than 60 bytes.
	const tooMuch = (all - few) * 60 / 2
	require.Greater(t, seen.read, int64(tooMuch), "reading mountinfo is noticed")
	require.GreaterOrEqual(t, seen.opened, len(beside), "opening all devices is noticed")
	for fsType, before := range base {
		for method, now := range d.measure(t, fsType, w) {
			t.Logf("%s %s: read %d bytes beside %d volumes, %d beside %d", fsType, method, before[method].read, few, now.read, all)
			require.Less(t, now.read-before[method].read, int64(tooMuch), "%s %s reads what grows with the number of volumes", fsType, method)
			require.Zero(t, now.opened, "%s %s opens devices of other volumes", fsType, method)
		}
	}
}

// use stages and publishes volumes until the test ends, and returns their devices.
func (d *driver) use(t *testing.T, from, to int) []string {
	t.Helper()
	devices := make([]string, to-from)
	c := capability(block)
	many(t, to-from, func(i int) error {
		name := fmt.Sprintf("used-%d", from+i)
		id, err := d.create(t.Context(), name, block)
		if err != nil {
			return err
		}
		t.Cleanup(func() { d.takeAway(t, id, name) })
		attached, err := d.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeName, VolumeCapability: c})
		if err != nil {
			return err
		}
		number, _ := strings.CutPrefix(attached.GetPublishContext()[loop.DeviceKey], "7:")
		devices[i] = "/dev/loop" + number
		_, err = d.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: id, StagingTargetPath: d.dir, VolumeCapability: c, PublishContext: attached.GetPublishContext(),
		})
		if err != nil {
			return err
		}
		_, err = d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: id, StagingTargetPath: d.dir, TargetPath: filepath.Join(d.dir, name), VolumeCapability: c,
		})
		return err
	})
	return devices
}

// takeAway ends a life that use began.
func (d *driver) takeAway(t *testing.T, id, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: filepath.Join(d.dir, name)})
	require.NoError(t, err)
	_, err = d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: d.dir})
	require.NoError(t, err)
	_, err = d.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id})
	require.NoError(t, err)
	_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	require.NoError(t, err)
}

// footprint is what a call did: bytes that the process read, and opens of watched
// devices by anybody.
type footprint struct {
	read   int64
	opened int
}

// measure returns the smallest footprint of each call of some lives: programs
// beside this one open devices too.
func (d *driver) measure(t *testing.T, fsType string, w *watch) map[string]footprint {
	t.Helper()
	smallest := map[string]footprint{}
	for i := range 5 {
		d.live(t.Context(), fmt.Sprintf("life-%d", i), fsType, func(method string, do func() (proto.Message, error)) (reply proto.Message) {
			var err error
			now := w.during(func() { reply, err = do() })
			require.NoError(t, err, method)
			before, ok := smallest[method]
			if !ok {
				before = now
			}
			smallest[method] = footprint{read: min(before.read, now.read), opened: min(before.opened, now.opened)}
			return reply
		})
	}
	require.Len(t, smallest, len(methods))
	return smallest
}

// requireSeen does what no call may.
func requireSeen(t *testing.T, devices []string) {
	t.Helper()
	_, err := os.ReadFile("/proc/thread-self/mountinfo")
	require.NoError(t, err)
	for _, path := range devices {
		f, err := os.Open(path)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// watch notices when devices are opened.
type watch struct {
	t  *testing.T
	fd int
}

func newWatch(t *testing.T, devices []string) *watch {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, path := range devices {
		_, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		require.NoError(t, err, path)
	}
	return &watch{t: t, fd: fd}
}

// during measures f.
func (w *watch) during(f func()) footprint {
	w.t.Helper()
	w.opens()
	before := bytesRead(w.t)
	f()
	return footprint{read: bytesRead(w.t) - before, opened: w.opens()}
}

// opens takes what was noticed since it was called before.
func (w *watch) opens() (n int) {
	w.t.Helper()
	buffer := make([]byte, 64<<10)
	for {
		got, err := unix.Read(w.fd, buffer)
		if err != nil {
			require.ErrorIs(w.t, err, unix.EAGAIN)
			return n
		}
		// Events of files that are watched themselves have no name.
		n += got / int(unsafe.Sizeof(unix.InotifyEvent{}))
	}
}

// bytesRead is what the process has read, from anywhere.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	require.NoError(t, err)
	return n
}
