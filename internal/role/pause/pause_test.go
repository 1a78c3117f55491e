package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/role/pause"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	p := pause.Doubling{First: time.Second, Most: 5 * time.Second}
	for range 2 {
		require.False(t, p.Begun())
		for _, want := range []time.Duration{1, 2, 4, 5, 5} {
			require.Equal(t, want*time.Second, p.Next())
			require.True(t, p.Begun())
		}
		p.Reset()
	}
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, began := pause.Doubling{First: time.Minute, Most: time.Hour}, time.Now()
		require.NoError(t, p.Wait(t.Context()))
		require.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Wait(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}
