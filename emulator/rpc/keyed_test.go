package rpc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestKeyedLockExcludes(t *testing.T) {
	t.Parallel()
	var k rpc.Keyed
	unlock, err := k.Lock(t.Context(), "a")
	require.NoError(t, err)

	_, ok := k.TryLock("a")
	require.False(t, ok)
	_, ok = k.TryRLock("a")
	require.False(t, ok)
	other, ok := k.TryLock("b")
	require.True(t, ok, "another key is free")
	require.Equal(t, 2, k.Len())
	other()

	unlock()
	unlock() // harmless
	again, ok := k.TryLock("a")
	require.True(t, ok)
	unlock() // still harmless: it gives nobody else's lock back
	_, ok = k.TryLock("a")
	require.False(t, ok)
	again()
	require.Zero(t, k.Len())
}

func TestKeyedReadersShare(t *testing.T) {
	t.Parallel()
	var k rpc.Keyed
	first, err := k.RLock(t.Context(), "a")
	require.NoError(t, err)
	second, ok := k.TryRLock("a")
	require.True(t, ok)
	first()
	_, ok = k.TryLock("a")
	require.False(t, ok, "one reader is left")
	second()
	require.Zero(t, k.Len())
}

func TestKeyedDoneContextTakesNothing(t *testing.T) {
	t.Parallel()
	var k rpc.Keyed
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := k.Lock(ctx, "a")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, k.Len())
}

func TestKeyedIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k rpc.Keyed
		hold, err := k.RLock(t.Context(), "a")
		require.NoError(t, err)

		// A writer, two readers, a writer, a reader come in this order.
		entered := make(chan string, 5)
		leave := map[string]chan struct{}{}
		enter := func(name string, lock func(context.Context, string) (func(), error)) {
			left := make(chan struct{})
			leave[name] = left
			go func() {
				unlock, err := lock(t.Context(), "a")
				assert.NoError(t, err)
				entered <- name
				<-left
				unlock()
			}()
			synctest.Wait()
		}
		enter("w1", k.Lock)
		enter("r1", k.RLock)
		enter("r2", k.RLock)
		enter("w2", k.Lock)
		enter("r3", k.RLock)
		_, ok := k.TryRLock("a")
		require.False(t, ok, "a reader does not pass a writer that waits")
		require.Empty(t, entered)

		hold()
		for _, together := range [][]string{{"w1"}, {"r1", "r2"}, {"w2"}, {"r3"}} {
			synctest.Wait()
			require.Len(t, entered, len(together))
			var names []string
			for range together {
				names = append(names, <-entered)
			}
			require.ElementsMatch(t, together, names)
			for _, name := range together {
				close(leave[name])
			}
		}
		synctest.Wait()
		require.Zero(t, k.Len())
	})
}

func TestKeyedWriterThatGivesUpLetsReadersPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k rpc.Keyed
		hold, err := k.RLock(t.Context(), "a")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gaveUp := make(chan error, 1)
		go func() {
			_, err := k.Lock(ctx, "a")
			gaveUp <- err
		}()
		synctest.Wait()
		passed := make(chan func(), 1)
		go func() {
			unlock, err := k.RLock(t.Context(), "a")
			assert.NoError(t, err)
			passed <- unlock
		}()
		synctest.Wait()
		require.Empty(t, passed, "the reader waits behind the writer")

		require.ErrorIs(t, <-gaveUp, context.DeadlineExceeded)
		(<-passed)()
		hold()
		require.Zero(t, k.Len())
	})
}

// TestKeyedModel lets many goroutines lock a few keys in all ways, with contexts
// that end at any moment, and holds them to the rule of read-write locks.
func TestKeyedModel(t *testing.T) {
	t.Parallel()
	const workers, rounds, keys = 16, 400, 3
	var k rpc.Keyed
	var readers, writers [keys]atomic.Int32
	var taken atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 1))
			for range rounds {
				i := random.IntN(keys)
				key := fmt.Sprint("key", i)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				shared := random.IntN(2) == 0
				unlock := take(&k, ctx, key, shared, random.IntN(3) == 0)
				if unlock != nil {
					taken.Add(1)
					if shared {
						readers[i].Add(1)
						assert.Zero(t, writers[i].Load())
						readers[i].Add(-1)
					} else {
						assert.Equal(t, int32(1), writers[i].Add(1))
						assert.Zero(t, readers[i].Load())
						writers[i].Add(-1)
					}
					unlock()
				}
				cancel()
			}
		})
	}
	group.Wait()
	require.Zero(t, k.Len(), "idle keys take no memory")
	require.Positive(t, taken.Load())
}

func take(k *rpc.Keyed, ctx context.Context, key string, shared, try bool) (unlock func()) {
	switch {
	case try && shared:
		unlock, _ = k.TryRLock(key)
	case try:
		unlock, _ = k.TryLock(key)
	case shared:
		unlock, _ = k.RLock(ctx, key)
	default:
		unlock, _ = k.Lock(ctx, key)
	}
	return unlock
}

func BenchmarkKeyed(b *testing.B) {
	var k rpc.Keyed
	for b.Loop() {
		unlock, _ := k.Lock(b.Context(), "volume")
		unlock()
	}
}
