package emulator_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func breakable(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"breakable": "true"} }

func onLoop(t *testing.T) *driver {
	t.Helper()
	c := backendCases()[0]
	testenv.Need(t, kernel.FUSE)
	dir := shortDir(t)
	return start(t, emulator.Config{Backend: c.open(t, dir), StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}}})
}

// openDirect opens a published raw block volume past the page cache.
func (v *volume) openDirect() *os.File {
	v.d.t.Helper()
	f, err := os.OpenFile(v.target, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(v.d.t, err)
	return f
}

// page is memory that direct I/O can use.
func page(t *testing.T) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

// What ControllerModifyVolume says is felt by who reads the device.
func TestModifyVolumeShapesItsIO(t *testing.T) {
	t.Parallel()
	d := onLoop(t)
	v := d.create("v", blockCapability(), mib, breakable)
	v.up()
	f, b := v.openDirect(), page(t)
	reads := func(n int) time.Duration {
		began := time.Now()
		for range n {
			_, err := f.ReadAt(b, 0)
			require.NoError(t, err)
		}
		return time.Since(began)
	}
	require.NoError(t, d.modify(v.id, map[string]string{"latency": "40ms"}))
	require.GreaterOrEqual(t, reads(5), 200*time.Millisecond)
	require.NoError(t, d.modify(v.id, map[string]string{"latency": "0s", "iops": "20"}))
	require.GreaterOrEqual(t, reads(20), 800*time.Millisecond)
	wantCode(t, codes.InvalidArgument, d.modify(v.id, map[string]string{"iops": "0", "colour": "blue"}))
	require.GreaterOrEqual(t, reads(20), 800*time.Millisecond, "nothing was applied")
	state, err := d.emulator.Volume(t.Context(), v.id)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"latency": "0s", "iops": "20"}, state.Mutable)
	require.NoError(t, d.modify(v.id, map[string]string{"iops": "0"}))
	require.NoError(t, f.Close())
	v.down()

	// The shape is the volume's, not the attachment's.
	require.NoError(t, d.modify(v.id, map[string]string{"latency": "40ms"}))
	v.up()
	f = v.openDirect()
	require.GreaterOrEqual(t, reads(5), 200*time.Millisecond)
	require.NoError(t, f.Close())
	v.down()
	v.delete()
}

// A process under a device that died with its emulator is seen by the next one, on
// both sides, until the volume is attached anew.
func TestDeadHolderIsSeenByTheNextStart(t *testing.T) {
	t.Parallel()
	for name, capability := range map[string]*csi.VolumeCapability{"file system": mountCapability("ext4")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Need(t, kernel.FUSE)
			b, state := backendCases()[0], shortDir(t)
			config := emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}}
			d := start(t, config)
			v := d.create("v", capability, 64*mib, breakable)
			v.up()
			require.Empty(t, d.health(v.id))
			d.stop()
			require.NoError(t, fusefile.Kill(t.Context(), filepath.Join(state, "volumes", v.id, "breakable")))

			config.Backend = b.open(t, state)
			next := start(t, config)
			next.dir, v.d = d.dir, next
			seen := next.health(v.id)
			require.Len(t, seen, 1)
			require.Equal(t, csi.VolumeHealthErrorType_INACCESSIBLE, seen[0].GetStatus())
			onNode := next.nodeHealth(v.id)
			require.Len(t, onNode, 1)
			require.Equal(t, csi.VolumeHealthErrorType_INACCESSIBLE, onNode[0].GetStatus())
			v.down()
			v.up()
			require.Empty(t, next.health(v.id))
			require.Empty(t, next.nodeHealth(v.id))
			v.down()
			v.delete()
		})
	}
}

// The writes of published raw block volumes are held for a group snapshot where
// they are breakable.
func TestGroupSnapshotOfBreakableRawBlockKeepsTheOrderOfWrites(t *testing.T) {
	t.Parallel()
	d := onLoop(t)
	const members = 2
	var volumes []*volume
	var files []*os.File
	for i := range members {
		v := d.create(string(rune('a'+i)), blockCapability(), mib, breakable)
		v.up()
		volumes, files = append(volumes, v), append(files, v.openDirect())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last atomic.Uint64
	var writer sync.WaitGroup
	b := page(t)
	writer.Go(func() {
		for n := uint64(1); ctx.Err() == nil; n++ {
			binary.LittleEndian.PutUint64(b, n)
			if _, err := files[n%members].WriteAt(b, 0); err != nil {
				t.Error(err)
				return
			}
			last.Store(n)
		}
	})
	require.Eventually(t, func() bool { return last.Load() > 10 }, patience, tick)
	before := last.Load()
	g := d.group("g", volumes...)
	require.Eventually(t, func() bool { return last.Load() > before+members }, patience, tick, "writers go on")
	cancel()
	writer.Wait()
	for i, f := range files {
		require.NoError(t, f.Close())
		volumes[i].down()
	}
	var newest []uint64
	for _, s := range g.GetSnapshots() {
		r := d.create("of "+s.GetSourceVolumeId(), blockCapability(), mib, fromSnapshot(s.GetSnapshotId()))
		r.up()
		data, err := os.ReadFile(r.target)
		require.NoError(t, err)
		newest = append(newest, binary.LittleEndian.Uint64(data))
		r.down()
		r.delete()
	}
	require.Less(t, max(newest[0], newest[1])-min(newest[0], newest[1]), uint64(members), "%v are not of one moment", newest)
	require.GreaterOrEqual(t, max(newest[0], newest[1]), before)
}
