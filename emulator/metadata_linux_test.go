package emulator_test

import (
	"bytes"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/testenv"
)

// forEachBlockStore runs a test over every backend with block devices, and the
// one on loop devices over every kind of store.
func forEachBlockStore(t *testing.T, test func(t *testing.T, d *driver)) {
	t.Helper()
	for _, b := range backendCases() {
		if !b.data {
			continue
		}
		stores := map[string]func(*testing.T) string{"": shortDir}
		if b.name == "loop" {
			stores[" on tmpfs"] = func(t *testing.T) string { return testenv.TmpfsDir(t) }
			stores[" on xfs with shared blocks"] = func(t *testing.T) string { return testenv.XFSDir(t) }
		}
		for where, store := range stores {
			t.Run(b.name+where, func(t *testing.T) {
				t.Parallel()
				state := store(t)
				test(t, start(t, emulator.Config{Backend: b.open(t, state), StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}}}))
			})
		}
	}
}

// scribble writes random bytes, zeros and holes at random places of a device
// and returns how many bytes that concerns at most, in whole blocks.
func scribble(t *testing.T, random *rand.Rand, device string, size int64) (touched int64) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	for range 30 {
		length := 1 + random.Int64N(128<<10)
		offset := random.Int64N(size - length)
		touched += length + 2*block
		p := make([]byte, length)
		switch random.IntN(4) {
		case 0: // zeros
			_, err = f.WriteAt(p, offset)
		case 1:
			const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
			err = unix.Fallocate(int(f.Fd()), punch, offset/block*block, (length+block-1)/block*block)
		default:
			_, _ = cryptorand.Read(p) // never fails, by its documentation
			_, err = f.WriteAt(p, offset)
		}
		require.NoError(t, err)
	}
	require.NoError(t, f.Sync())
	return touched
}

// restored is a snapshot's bytes, through a device.
func (d *driver) restored(name, snapshotID string, size int64) []byte {
	d.t.Helper()
	v := d.create(name, blockCapability(), size, fromSnapshot(snapshotID))
	v.up()
	p, err := os.ReadFile(v.target)
	require.NoError(d.t, err)
	require.Len(d.t, p, int(size))
	v.down()
	v.delete()
	return p
}

// apply is the copy of a backup tool: ranges of src over dst.
func apply(dst, src []byte, all []backends.Extent) []byte {
	for _, e := range all {
		copy(dst[e.Offset:e.Offset+e.Length], src[e.Offset:])
	}
	return dst
}

// cut is what an answer holds from an offset on.
func cut(all []backends.Extent, from int64) (rest []backends.Extent) {
	for _, e := range all {
		if end := e.Offset + e.Length; end > from {
			start := max(e.Offset, from/block*block)
			rest = append(rest, backends.Extent{Offset: start, Length: end - start})
		}
	}
	return rest
}

func total(all []backends.Extent) (n int64) {
	for _, e := range all {
		n += e.Length
	}
	return n
}

// TestIncrementalBackup copies a raw block volume by its metadata alone.
func TestIncrementalBackup(t *testing.T) {
	t.Parallel()
	forEachBlockStore(t, func(t *testing.T, d *driver) {
		const size, grown = 24 * mib, 32 * mib
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		v := d.create("origin", blockCapability(), size)
		v.up()
		scribble(t, random, v.target, size)
		base := d.snapshot("base", v.id)
		touched := scribble(t, random, v.target, size)
		middle := d.snapshot("middle", v.id)
		expand(t, v, grown)
		scribble(t, random, v.target, grown)
		target := d.snapshot("target", v.id)
		v.down()

		was := d.restored("base copy", base.GetSnapshotId(), size)
		then := d.restored("middle copy", middle.GetSnapshotId(), size)
		is := d.restored("target copy", target.GetSnapshotId(), grown)
		require.False(t, bytes.Equal(was, then))
		m := d.metadata()

		first := query{delta: true, base: base.GetSnapshotId(), target: middle.GetSnapshotId()}
		changed := m.all(t, first)
		require.EqualValues(t, size, changed.size)
		require.LessOrEqual(t, total(changed.blocks), touched, "not more than was written")
		require.True(t, bytes.Equal(then, apply(bytes.Clone(was), then, changed.blocks)))

		larger := query{delta: true, base: base.GetSnapshotId(), target: target.GetSnapshotId()}
		changed = m.all(t, larger)
		require.EqualValues(t, grown, changed.size)
		require.True(t, bytes.Equal(is, apply(append(bytes.Clone(was), make([]byte, grown-size)...), is, changed.blocks)))
		whole := query{target: target.GetSnapshotId()}
		require.True(t, bytes.Equal(is, apply(make([]byte, grown), is, m.all(t, whole).blocks)), "what is not allocated is zero")

		for _, q := range []query{first, larger, whole} {
			resume(t, m, q, random)
		}
		for _, s := range []*csi.Snapshot{base, middle, target} {
			_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId()})
			require.NoError(t, err)
		}
		v.delete()
	})
}

// expand grows a raw block volume in use.
func expand(t *testing.T, v *volume, size int64) {
	t.Helper()
	resp, err := v.d.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: v.capability,
	})
	require.NoError(t, err)
	require.Equal(t, size, resp.GetCapacityBytes())
}

// resume asks again from places that a reader may have come to.
func resume(t *testing.T, m metadata, q query, random *rand.Rand) {
	t.Helper()
	whole := m.all(t, q)
	require.NotEmpty(t, whole.blocks)
	offsets := []int64{1, block - 1, block, whole.size - 1, whole.size}
	for range 4 {
		e := whole.blocks[random.IntN(len(whole.blocks))]
		offsets = append(offsets, e.Offset, e.Offset+e.Length, e.Offset+random.Int64N(e.Length), random.Int64N(whole.size))
	}
	for _, q.from = range offsets {
		q.most = random.Int32N(5)
		require.Equal(t, cut(whole.blocks, q.from), m.all(t, q).blocks, "from %d", q.from)
	}
}

// TestMetadataOfASnapshotThatIsDeleted has a slow reader, beside whom the
// snapshot and its volume go.
func TestMetadataOfASnapshotThatIsDeleted(t *testing.T) {
	t.Parallel()
	forEachBlockStore(t, func(t *testing.T, d *driver) {
		const size = 64 * mib
		v := d.create("origin", blockCapability(), size)
		empty := d.snapshot("empty", v.id).GetSnapshotId()
		v.up()
		f, err := os.OpenFile(v.target, os.O_WRONLY, 0)
		require.NoError(t, err)
		data := bytes.Repeat([]byte("data"), block/4)
		for offset := int64(0); offset < size; offset += 2 * block {
			_, err := f.WriteAt(data, offset)
			require.NoError(t, err)
		}
		require.NoError(t, f.Sync())
		require.NoError(t, f.Close())
		full := d.snapshot("full", v.id).GetSnapshotId()
		v.down()
		m := d.metadata()
		queries := []query{{target: full, most: 1}, {delta: true, base: empty, target: full, most: 1}}
		answers := make([]answer, len(queries))
		rest := make([]func() (part, error), len(queries))
		want := make([][]backends.Extent, len(queries))
		for i, q := range queries {
			want[i] = m.all(t, query{delta: q.delta, base: q.base, target: q.target}).blocks
			require.Len(t, want[i], size/(2*block))
			rest[i], err = m.open(t.Context(), q)
			require.NoError(t, err)
			p, err := rest[i]()
			require.NoError(t, err)
			answers[i].take(t, q, p)
		}
		for _, id := range []string{full, empty} {
			_, err := d.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
			require.NoError(t, err, "a reader holds nobody up")
		}
		v.delete()
		for i, q := range queries {
			require.NoError(t, answers[i].drain(t, q, rest[i]))
			require.Equal(t, want[i], answers[i].blocks)
		}
	})
}
