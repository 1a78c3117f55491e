//go:build linux

package loopdev_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

// Two pools stand for two processes that take from the same devices.
func TestManyCallersAttachAndDetachAtOnce(t *testing.T) {
	t.Parallel()
	const callers, rounds = 32, 6
	pools := []*loopdev.Pool{newPool(t, loopdev.Options{}), newPool(t, loopdev.Options{})}
	dir := testenv.TmpfsDir(t)
	failures := make(chan error, callers)
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			for round := range rounds {
				config := loopdev.Config{Name: uniqueName(), Autoclear: round%2 == 0, ReadOnly: round%3 == 0}
				if err := live(pools[caller%2], dir, config); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}

// live is one life of a device, which must show its own file and nobody else's.
func live(pool *loopdev.Pool, dir string, c loopdev.Config) error {
	backing, err := os.CreateTemp(dir, "")
	if err != nil {
		return err
	}
	defer backing.Close()
	if _, err := backing.WriteString(c.Name); err != nil {
		return err
	}
	if err := backing.Truncate(mebibyte); err != nil {
		return err
	}
	d, err := pool.Attach(context.Background(), backing, c)
	if err != nil {
		return err
	}
	check := func() error {
		device, err := os.Open(d.Path())
		if err != nil {
			return err
		}
		defer device.Close()
		got := make([]byte, len(c.Name))
		if _, err := device.ReadAt(got, 0); err != nil {
			return err
		}
		if string(got) != c.Name {
			return fmt.Errorf("loop%d shows %q, not %q", d.Index, got, c.Name)
		}
		status, err := d.Status()
		if err == nil && status.ReadOnly != c.ReadOnly {
			err = fmt.Errorf("loop%d: read-only is %t", d.Index, status.ReadOnly)
		}
		return err
	}()
	inUse, err := pool.Detach(context.Background(), d)
	if inUse {
		err = errors.Join(err, fmt.Errorf("loop%d is in use", d.Index))
	}
	return errors.Join(check, err)
}

func TestAnotherProgramTakesAFreeIndex(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	free, foreign := lose(t, pool, func(d *loopdev.Device) { detach(t, pool, d) })
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	require.NotEqual(t, free.Index, d.Index)
	requireUntouched(t, free.Index, foreign)
}

func TestDetachAtOnceReleasesOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, loopdev.Options{})
	d := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{Autoclear: true})
	var group sync.WaitGroup
	failures := make(chan error, 16)
	for range cap(failures) {
		group.Go(func() {
			_, statusErr := d.Status() // other callers may look meanwhile
			if errors.Is(statusErr, loopdev.ErrNotBound) {
				statusErr = nil
			}
			inUse, err := pool.Detach(context.Background(), d)
			if inUse {
				err = errors.Join(err, errors.New("in use"))
			}
			failures <- errors.Join(statusErr, err)
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	first := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	second := attach(t, pool, newBacking(t, t.TempDir()), loopdev.Config{})
	require.NotEqual(t, first.Index, second.Index)
}
