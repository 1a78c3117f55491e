package record

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestCallsForOneRecordQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k keyedLocks
		unlock, err := k.lock(t.Context(), "a")
		require.NoError(t, err)
		other, err := k.lock(t.Context(), "b")
		require.NoError(t, err, "another record does not wait")
		other()

		got := false
		go func() {
			unlock, err := k.lock(t.Context(), "a")
			check(t, err)
			got = true
			unlock()
		}()
		synctest.Wait()
		require.False(t, got)

		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := k.lock(ctx, "a")
			gaveUp <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)

		unlock()
		synctest.Wait()
		require.True(t, got)
		require.Empty(t, k.held)
	})
}
