//go:build linux

package loop_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

// breakable makes a breakable volume.
func (r *rig) breakable(size int64) backends.Volume {
	r.t.Helper()
	testenv.Need(r.t, kernel.FUSE)
	v := r.volume(backends.Layout{SizeBytes: size, Breakable: true})
	require.NoError(r.t, r.backend.Create(r.t.Context(), v))
	return v
}

func holderDir(v backends.Volume) string { return filepath.Join(v.Dir, "breakable") }

// direct opens the device of an attachment around the page cache, until the test
// ends.
func direct(t testing.TB, name string) *os.File {
	t.Helper()
	d, err := loopdev.Find(t.Context(), name, -1, loopdev.Options{})
	require.NoError(t, err)
	f, err := os.OpenFile(d.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// aligned is a buffer that direct I/O takes.
func aligned(size int) []byte {
	b := make([]byte, size+4096)
	skip := 4096 - int(uintptr(unsafe.Pointer(&b[0]))%4096)
	return b[skip : skip+size]
}

func requireNoMount(t *testing.T, v backends.Volume) {
	t.Helper()
	all, err := mount.ListUnder(v.Dir)
	require.NoError(t, err)
	require.Empty(t, all)
}

func requireNoHolder(t *testing.T, v backends.Volume) {
	t.Helper()
	_, err := fusefile.Ask(t.Context(), holderDir(v))
	require.ErrorIs(t, err, fusefile.ErrNotServing)
	requireNoMount(t, v)
}

func TestPlanOfABreakableVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	testenv.Need(t, kernel.FUSE)
	l, err := r.backend.Plan(backends.Request{Block: true, Parameters: map[string]string{"breakable": "true"}})
	require.NoError(t, err)
	require.True(t, l.Breakable)
	_, err = r.backend.Plan(backends.Request{Block: true, Parameters: map[string]string{"breakable": "true", "directIO": "true"}})
	require.ErrorIs(t, err, backends.ErrInvalid)
	_, err = r.backend.Plan(backends.Request{Block: true, Parameters: map[string]string{"breakable": "yes"}})
	require.ErrorIs(t, err, backends.ErrInvalid)
}

func TestTheLifeOfABreakableVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(4 * mebibyte)
	a, pc := r.attach(v, false)
	require.True(t, status(t, a.ID).DirectIO)
	again, err := r.backend.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.Equal(t, pc, again)
	st, err := fusefile.Ask(t.Context(), holderDir(v))
	require.NoError(t, err)
	require.Equal(t, v.ID, st.VolumeID)

	block := aligned(4096)
	copy(block, "kept")
	device := direct(t, a.ID)
	_, err = device.WriteAt(block, 4096)
	require.NoError(t, err)
	s := r.snapshot(v)
	require.NoError(t, device.Close())

	v.SizeBytes *= 2
	require.NoError(t, r.backend.Grow(t.Context(), v))
	d, err := loopdev.Find(t.Context(), a.ID, -1, loopdev.Options{})
	require.NoError(t, err)
	size, err := d.Size()
	require.NoError(t, err)
	require.Equal(t, v.SizeBytes, size)

	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
	requireNoHolder(t, v)
	require.NoError(t, r.backend.Detach(t.Context(), v, a), "a repeated call")

	restored := r.volume(backends.Layout{SizeBytes: v.SizeBytes, Breakable: true})
	require.NoError(t, r.backend.Restore(t.Context(), s, restored))
	b, _ := r.attach(restored, true)
	require.True(t, status(t, b.ID).ReadOnly)
	d, err = loopdev.Find(t.Context(), b.ID, -1, loopdev.Options{})
	require.NoError(t, err)
	require.Equal(t, "kept", read(t, d.Path())[4096:4100])

	require.NoError(t, r.backend.Delete(t.Context(), restored))
	requireNoDevice(t, b.ID)
	requireNoMount(t, restored)
	requireEmpty(t, restored.Dir)
}

func TestABreakableVolumeHasAFileSystem(t *testing.T) {
	t.Parallel()
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.Feature(fsType))
			r := newRig(t)
			v := r.breakable(size)
			s := r.mounted(v, fsType)
			write(t, filepath.Join(s.Path, "file"), "kept")
			require.NoError(t, r.node.Unstage(t.Context(), s))
			require.NoError(t, r.backend.Detach(t.Context(), v, backends.Attachment{ID: s.DeviceID}))
			s = r.mounted(v, fsType)
			require.Equal(t, "kept", read(t, filepath.Join(s.Path, "file")))
		})
	}
}

func TestDetachOfABreakableVolumeInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	user := direct(t, a.ID)
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	_, err := user.WriteAt(aligned(4096), 64<<10)
	require.Error(t, err)
	requireNoMount(t, v)
	next := backends.Attachment{ID: newID("att")}
	_, err = r.backend.Attach(t.Context(), v, next)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.NoError(t, user.Close())
	_, err = r.backend.Attach(t.Context(), v, next)
	require.NoError(t, err, "once its users have gone")
	require.NoError(t, r.backend.Detach(t.Context(), v, next))
	requireNoHolder(t, v)
}

func TestAKilledHolderIsADeadDisk(t *testing.T) {
	t.Parallel()
	for name, inUse := range map[string]bool{"nobody has it open": false, "somebody has it open": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			v := r.breakable(mebibyte)
			a, pc := r.attach(v, false)
			device := direct(t, a.ID)
			block := bytes.Repeat([]byte("x"), 4096)
			copied := aligned(4096)
			copy(copied, block)
			_, err := device.WriteAt(copied, 0)
			require.NoError(t, err)
			require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
			_, err = device.ReadAt(copied, 0)
			require.ErrorIs(t, err, unix.EIO)
			_, err = device.WriteAt(copied, 0)
			require.ErrorIs(t, err, unix.EIO)
			again, err := r.backend.Attach(t.Context(), v, a)
			require.NoError(t, err, "it is attached, if broken")
			require.Equal(t, pc, again)
			if !inUse {
				require.NoError(t, device.Close())
			}

			require.NoError(t, r.backend.Detach(t.Context(), v, a))
			requireNoMount(t, v)
			_ = device.Close() // again, or at last
			b, _ := r.attach(v, false)
			got := aligned(4096)
			_, err = direct(t, b.ID).ReadAt(got, 0)
			require.NoError(t, err)
			require.Equal(t, block, got)
		})
	}
}

func TestNothingIsLeftOfABreakableVolumeWhenTheBackendIsToLeaveNothing(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.FUSE)
	dir := tmpfsDir(t)
	b, err := loop.New(loop.Options{Dir: dir, Autoclear: true})
	require.NoError(t, err)
	v := backends.Volume{ID: "v", Dir: filepath.Join(dir, "v"), Layout: backends.Layout{SizeBytes: mebibyte, Breakable: true}}
	require.NoError(t, os.Mkdir(v.Dir, 0o700))
	require.NoError(t, b.Create(t.Context(), v))
	a := backends.Attachment{ID: newID("att")}
	_, err = b.Attach(t.Context(), v, a)
	require.NoError(t, err)
	require.True(t, status(t, a.ID).Autoclear)
	require.NoError(t, b.Close())
	require.Eventually(t, func() bool {
		_, err := loopdev.Find(t.Context(), a.ID, -1, loopdev.Options{})
		return err != nil
	}, 5*time.Second, 5*time.Millisecond)
	requireNoHolder(t, v)
}

func TestDetachDoesNotWaitForAHolderThatIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a, _ := r.attach(v, false)
	st, err := fusefile.Ask(t.Context(), holderDir(v))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(st.PID, unix.SIGSTOP))
	require.Eventually(t, func() bool {
		return strings.Contains(read(t, fmt.Sprintf("/proc/%d/status", st.PID)), "State:\tT")
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, r.backend.Detach(t.Context(), v, a))
	requireNoDevice(t, a.ID)
	requireNoHolder(t, v)
}

func TestCallsOnAVolumeWhoseHolderIsDead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	r.attach(v, false)
	require.NoError(t, fusefile.Kill(t.Context(), holderDir(v)))
	_, err := r.backend.Pause(t.Context(), v)
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.NoError(t, r.backend.Shape(t.Context(), v, backends.Shaping{IOPS: 1}), "from the next Attach on")
	_, err = r.backend.Usage(t.Context(), v)
	require.NoError(t, err)
	grown := v
	grown.SizeBytes *= 2
	require.ErrorIs(t, r.backend.Grow(t.Context(), grown), backends.ErrPrecondition)
}
