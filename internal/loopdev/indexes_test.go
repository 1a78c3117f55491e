//go:build linux

package loopdev

import (
	"os"
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

func TestNewDeviceStepsOverThoseThatExist(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	pool, err := NewPool(Options{})
	require.NoError(t, err)
	defer pool.Close()
	backing, err := os.Create(t.TempDir() + "/backing")
	require.NoError(t, err)
	defer backing.Close()
	require.NoError(t, backing.Truncate(1<<20))
	remove := func(index int) {
		// Another program may have taken it, and then it is not ours to remove.
		_ = withFD(pool.control, func(fd int) error { return ioctl(fd, unix.LOOP_CTL_REMOVE, index) })
	}

	// The first index that is tried exists: this test makes it.
	pool.indexes.listed = true
	existing, err := pool.take()
	for err == errTaken {
		existing, err = pool.take()
	}
	require.NoError(t, err)
	defer remove(existing)
	pool.indexes.next = existing

	d, err := pool.Attach(t.Context(), backing, Config{Name: "test-step-" + t.TempDir()[len(os.TempDir()):][:40]})
	require.NoError(t, err)
	defer remove(d.Index)
	require.Greater(t, d.Index, existing)
	inUse, err := pool.Detach(t.Context(), d)
	require.NoError(t, err)
	require.False(t, inUse)
}
