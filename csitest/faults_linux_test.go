package csitest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// published is a volume in use.
type published struct {
	*csitest.Volume
	double *csitest.Double
}

func publish(t *testing.T, spec csitest.Spec) *published {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.FUSE)
	d := csitest.New(t, csitest.Loop())
	return &published{d.Publish(spec), d}
}

// breakableBlock is a raw block volume with an end at 32 MiB.
var breakableBlock = csitest.Spec{Block: true, Breakable: true, SizeBytes: 32 << 20}

// open opens the device of a raw block volume past the page cache.
func (p *published) open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(p.Path(), os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// block is memory that direct I/O can use.
func block(t *testing.T) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

func TestBlockDeviceFailsAsToldAndHeals(t *testing.T) {
	t.Parallel()
	p := publish(t, breakableBlock)
	f, b := p.open(t), block(t)
	defer f.Close()
	write := func(offset int64) error { _, err := f.WriteAt(b, offset); return err }
	read := func(offset int64) error { _, err := f.ReadAt(b, offset); return err }
	const far = 30 << 20
	require.NoError(t, errors.Join(write(0), read(0), write(far)))

	p.Fail("eio(writes)")
	require.ErrorIs(t, write(0), syscall.EIO)
	require.NoError(t, read(0))
	require.NotEmpty(t, p.Get().Faults, "it says which mechanism is used")
	p.Heal()
	require.NoError(t, write(0))

	p.Fail("eio(reads,4096,4096)")
	require.NoError(t, read(0))
	require.ErrorIs(t, read(4096), syscall.EIO)
	p.Heal()

	p.Fill("50%")
	require.NoError(t, write(0))
	require.ErrorIs(t, write(far), syscall.ENOSPC)
	p.Heal()
	require.NoError(t, write(far))

	for i := range b {
		b[i] = 'x'
	}
	require.NoError(t, write(8192))
	p.Fail("corrupt(8192,4096)")
	require.NoError(t, read(8192))
	require.Contains(t, string(b), "x")
	changed := 0
	for _, c := range b {
		if c != 'x' {
			changed++
		}
	}
	require.Positive(t, changed, "what is read is not what was written")
	p.Heal()
	require.NoError(t, read(8192))
	for _, c := range b {
		require.Equal(t, byte('x'), c, "what is stored is whole")
	}

	p.Fail("slow(60ms)")
	began := time.Now()
	require.NoError(t, read(0))
	require.GreaterOrEqual(t, time.Since(began), 60*time.Millisecond)
	p.Heal()

	p.Fail("gone")
	require.Error(t, errors.Join(read(0), write(0)))
	health, err := p.double.Controller().ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: p.Get().ID})
	require.NoError(t, err)
	require.Equal(t, csi.VolumeHealthErrorType_INACCESSIBLE, health.GetVolumeHealth().GetHealthStatuses()[0].GetStatus())
}

func TestFilesystemTurnsReadOnlyUnderItsWriter(t *testing.T) {
	t.Parallel()
	p := publish(t, csitest.Spec{FSType: "ext4", Breakable: true})
	f, err := os.Create(filepath.Join(p.Path(), "file"))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteString("before")
	require.NoError(t, errors.Join(err, f.Sync()))
	p.Fail("readonly")
	require.Eventually(t, func() bool {
		_, err := f.WriteString("x")
		return errors.Is(errors.Join(err, f.Sync()), syscall.EROFS) || errors.Is(createIn(p.Path()), syscall.EROFS)
	}, 20*time.Second, 20*time.Millisecond)
	node, err := p.double.Nodes()[0].NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: p.Get().ID})
	require.NoError(t, err)
	require.NotEmpty(t, node.GetVolumeHealth().GetHealthStatuses())
}

func createIn(dir string) error {
	f, err := os.CreateTemp(dir, "x")
	if err == nil {
		err = f.Close()
	}
	return err
}

func TestPlainVolumeFailsAllOfItsIO(t *testing.T) {
	t.Parallel()
	p := publish(t, csitest.Spec{FSType: "ext4"})
	f, err := os.Create(filepath.Join(p.Path(), "file"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	p.Fail("eio")
	_, err = f.WriteString("x")
	require.ErrorIs(t, errors.Join(err, f.Sync()), syscall.EIO)

	failed := run(func(tb *printer) {
		d := csitest.New(tb, csitest.Loop())
		d.Publish(csitest.Spec{Name: "v"})
		d.Inject("Volume{name=v}: eio(writes)")
	})
	require.True(t, failed.failed)
	require.Contains(t, failed.text.String(), "breakable=true", "what it cannot do is refused with the way out")
}

// No fault of one volume is felt by another.
func TestFaultHarmsNoOtherVolume(t *testing.T) {
	t.Parallel()
	p := publish(t, breakableBlock)
	q := publish(t, breakableBlock)
	p.Fail("eio")
	f, b := q.open(t), block(t)
	defer f.Close()
	_, err := f.WriteAt(b, 0)
	require.NoError(t, err)
}
