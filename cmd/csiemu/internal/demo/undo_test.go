package demo

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUndoGoesOnAfterErrorsNewestFirst(t *testing.T) {
	t.Parallel()
	var u undo
	var order []string
	fails := errors.New("does not go")
	step := func(name string, err error) *entry {
		return u.add(name, func(context.Context) error {
			order = append(order, name)
			return err
		})
	}
	step("first", nil)
	second := step("second", fails)
	third := step("third", nil)
	require.NoError(t, u.now(t.Context(), third))
	require.ErrorIs(t, u.now(t.Context(), second), fails)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := u.all(ended)
	require.ErrorIs(t, err, fails)
	require.ErrorContains(t, err, "undo second")
	require.Equal(t, []string{"third", "second", "second", "first"}, order)
	require.NoError(t, u.all(t.Context()))
}
