//go:build linux

package loopdev_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/loopdev"
)

func TestFindAsksTheHintAndThenAllDevices(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	other := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	absent := absentIndex(t)

	for name, hint := range map[string]int{
		"the hint is right":                d.Index,
		"there is no hint":                 -1,
		"the hint is another's device":     other.Index,
		"the hint is a device that is not": absent,
		"the hint is no index":             1 << 40,
	} {
		t.Run(name, func(t *testing.T) {
			found, err := loopdev.Find(context.Background(), d.Name, hint, loopdev.Options{})
			require.NoError(t, err)
			require.Equal(t, d.Index, found.Index)
			require.Equal(t, d.Path(), found.Path())
			_, err = found.Status()
			require.NoError(t, err)
		})
	}
	requireAbsent(t, absent)

	for name, absent := range map[string]string{
		"nobody has the name":   uniqueName(),
		"a prefix of a name":    d.Name[:len(d.Name)-1],
		"a name with more text": d.Name + "x",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loopdev.Find(context.Background(), absent, d.Index, loopdev.Options{})
			require.ErrorIs(t, err, loopdev.ErrNotBound)
			require.ErrorContains(t, err, absent)
		})
	}
	_, err := loopdev.Find(context.Background(), "", -1, loopdev.Options{})
	require.ErrorContains(t, err, "no name")

	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = loopdev.Find(cancelled, d.Name, -1, loopdev.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestTwoDevicesOfOneNameAreAnError(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	name := uniqueName()
	attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{Name: name})
	attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{Name: name})
	_, err := loopdev.Find(context.Background(), name, -1, loopdev.Options{})
	require.ErrorContains(t, err, "both carry the name")
}

func TestScanListsOwnAndForeignDevices(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{ReadOnly: true})
	lost, foreign := lose(t, pool, func(d *loopdev.Device) { detach(t, pool, d) })

	for name, scan := range map[string]func(context.Context) ([]loopdev.Status, error){
		"function": loopdev.Scan, "of a pool": pool.Scan,
	} {
		t.Run(name, func(t *testing.T) {
			statuses, err := scan(context.Background())
			require.NoError(t, err)
			byName := map[string]loopdev.Status{}
			for _, status := range statuses {
				byName[status.Name] = status
			}
			require.Equal(t, d.Index, byName[d.Name].Index)
			require.True(t, byName[d.Name].ReadOnly)
			require.Equal(t, lost.Index, byName[foreign].Index)
			require.NotContains(t, byName, lost.Name)
		})
	}
}

func TestDeviceIsAdoptedAfterARestart(t *testing.T) {
	t.Parallel()
	before := newPool(t, loopdev.Options{})
	name := uniqueName()
	d, err := before.Attach(context.Background(), newBacking(t, t.TempDir()), loopdev.Config{Name: name})
	require.NoError(t, err)

	after := newPool(t, loopdev.Options{})
	for name, wrong := range map[string]struct {
		index int
		name  string
	}{
		"another name":              {d.Index, uniqueName()},
		"a device that is not":      {absentIndex(t), name},
		"an index that cannot be":   {-5, name},
		"a device bound to nothing": {unboundIndex(t, after), name},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := after.Adopt(wrong.index, wrong.name)
			require.ErrorIs(t, err, loopdev.ErrNotBound)
		})
	}
	adopted, err := after.Adopt(d.Index, name)
	require.NoError(t, err)
	require.Equal(t, d.Path(), adopted.Path())
	detach(t, after, adopted)

	// Both processes' views agree that it is gone, and the index is free.
	_, err = d.Status()
	require.ErrorIs(t, err, loopdev.ErrNotBound)
	detach(t, before, d)
	_, err = after.Adopt(d.Index, name)
	require.ErrorIs(t, err, loopdev.ErrNotBound)
}

// unboundIndex is the index of a device that exists and is free.
func unboundIndex(t *testing.T, pool *loopdev.Pool) int {
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	detach(t, pool, d)
	return d.Index
}
