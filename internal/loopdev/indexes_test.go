//go:build linux

package loopdev

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestIndexesAreTriedInTheOrderOfTheirCost(t *testing.T) {
	t.Parallel()
	const limit = firstIndex + 4
	// 1<<20-1 exists on no machine that the test runs on, so it is not bound.
	x := indexes{listed: true, existing: []int{minors - 1}, next: limit - 1, limit: limit}
	x.give(100)
	x.give(101)
	x.give(101) // as two detaches of one device at once do

	type pop struct {
		index  int
		create bool
	}
	var got []pop
	for range 5 {
		index, create := x.pop()
		got = append(got, pop{index, create})
	}
	require.Equal(t, []pop{
		{101, false},        // what was released last
		{100, false},        // what was released before
		{minors - 1, false}, // what was there
		{limit - 1, true},   // what has to be made
		{firstIndex, true},  // the numbers begin again at their end
	}, got)
}

func TestFirstNewIndexIsWithinTheNumbersOfTheDriver(t *testing.T) {
	t.Parallel()
	for _, partShift := range []int{0, 4, 15} {
		for range 1000 {
			x := newIndexes(partShift)
			require.GreaterOrEqual(t, x.next, firstIndex)
			require.Less(t, x.next, minors>>partShift)
		}
	}
}

// newPoolOfOwn returns a pool that uses no device but those of this test, and
// how to remove one of them.
func newPoolOfOwn(t *testing.T, o Options) (pool *Pool, remove func(index int)) {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	pool, err := NewPool(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	pool.indexes.listed = true
	return pool, func(index int) {
		// Another program may have taken it, and then it is not ours to remove.
		_ = withFD(pool.control, func(fd int) error { return ioctl(fd, unix.LOOP_CTL_REMOVE, index) })
	}
}

// newDevice makes a device that is bound to nothing.
func newDevice(t *testing.T, pool *Pool) (index int) {
	t.Helper()
	for {
		index, _, err := pool.take()
		if errors.Is(err, errTaken) {
			continue
		}
		require.NoError(t, err)
		return index
	}
}

// attachAnother attaches and detaches a device and returns its index.
func attachAnother(t *testing.T, pool *Pool) (index int) {
	t.Helper()
	backing, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer backing.Close()
	require.NoError(t, backing.Truncate(1<<20))
	d, err := pool.Attach(t.Context(), backing, Config{Name: "test-" + rand.Text()})
	require.NoError(t, err)
	inUse, err := pool.Detach(t.Context(), d)
	require.NoError(t, err)
	require.False(t, inUse)
	return d.Index
}

func TestNewDeviceStepsOverThoseThatExist(t *testing.T) {
	t.Parallel()
	pool, remove := newPoolOfOwn(t, Options{})
	existing := newDevice(t, pool)
	defer remove(existing)
	pool.indexes.next = existing

	index := attachAnother(t, pool)
	defer remove(index)
	require.NotEqual(t, existing, index)
}

func TestRemovedDeviceIsSteppedOver(t *testing.T) {
	t.Parallel()
	pool, remove := newPoolOfOwn(t, Options{})
	removed := newDevice(t, pool)
	remove(removed)
	pool.indexes.give(removed)

	index := attachAnother(t, pool)
	defer remove(index)
	require.NotEqual(t, removed, index)
}

// With a directory for nodes a look would make both the node and the device.
func TestDeviceIsNotMadeAnewByItsMethods(t *testing.T) {
	t.Parallel()
	pool, remove := newPoolOfOwn(t, Options{Dev: t.TempDir(), NodeDir: t.TempDir()})
	removed := newDevice(t, pool)
	remove(removed)
	d := &Device{Index: removed, Name: "test-" + rand.Text(), nodes: pool.nodes}
	_, err := d.Status()
	require.ErrorIs(t, err, ErrNotBound)
	inUse, err := pool.Detach(t.Context(), d)
	require.NoError(t, err)
	require.False(t, inUse)
	require.False(t, exists(removed))
}

// A directory that is empty stands for a machine that hides its devices.
func TestDevicesAreNotMadeWithoutEnd(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	require.NoError(t, os.Symlink("/dev/loop-control", filepath.Join(dev, "loop-control")))
	pool, remove := newPoolOfOwn(t, Options{Dev: dev})
	backing, err := os.Create(filepath.Join(dev, "backing"))
	require.NoError(t, err)
	defer backing.Close()
	for range 3 {
		_, err = pool.Attach(t.Context(), backing, Config{Name: "test-" + rand.Text()})
		require.ErrorIs(t, err, kernel.ErrNotSupported)
	}
	require.NotEmpty(t, pool.indexes.released)
	require.LessOrEqual(t, len(pool.indexes.released), maxAside)
	for _, index := range pool.indexes.released {
		remove(index)
	}
}
