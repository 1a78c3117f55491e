package link_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link"
)

func TestHoldAndRelease(t *testing.T) {
	t.Parallel()
	l := newLocal()
	s, _ := connected(t, l)
	release, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.NoError(t, err)
	require.Equal(t, "vol-1", receive(t, l.held))
	require.Empty(t, l.released)
	require.NoError(t, release(t.Context()))
	require.Equal(t, "vol-1", receive(t, l.released))
	require.False(t, l.exact.Load())
	release, err = s.Hold(t.Context(), "node-1", "vol-1", true)
	require.NoError(t, err)
	require.True(t, l.exact.Load())
	require.NoError(t, release(t.Context()))
}

func TestSecretsAreCheckedByTheArray(t *testing.T) {
	t.Parallel()
	_, c := connected(t, newLocal())
	require.NoError(t, c.Authorize(t.Context(), "secret", "NodeStageVolume", map[string]string{"token": "NodeStageVolume"}))
	err := c.Authorize(t.Context(), "secret", "NodeStageVolume", map[string]string{"token": "other"})
	require.ErrorIs(t, err, backends.ErrUnauthenticated)
}

func TestHoldOfANodeThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	_, err := s.Hold(t.Context(), "node-9", "vol-1", false)
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.ErrorContains(t, err, "hold volume vol-1: ask node node-9: it is not connected")
}

func TestHoldThatTheNodeRefuses(t *testing.T) {
	t.Parallel()
	l := newLocal()
	l.holdErr = fmt.Errorf("volume vol-1 cannot be frozen: %w", backends.ErrPrecondition)
	s, _ := connected(t, l)
	_, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.ErrorIs(t, err, backends.ErrPrecondition)
	require.ErrorContains(t, err, "cannot be frozen")
}

func TestReleaseThatCameTooLate(t *testing.T) {
	t.Parallel()
	l := newLocal()
	l.endErr = errors.New("the watchdog thawed first")
	s, _ := connected(t, l)
	release, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.NoError(t, err)
	require.ErrorContains(t, release(t.Context()), "the watchdog thawed first")
}

func TestPanicOfTheNode(t *testing.T) {
	t.Parallel()
	s, c := connected(t, newLocal())
	_, err := s.Hold(t.Context(), "node-1", "panics", false)
	require.ErrorContains(t, err, "fault of its own")
	release, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.NoError(t, err, "the session goes on")
	require.NoError(t, release(t.Context()))
	ready(t, c)
}

func TestHoldEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := newLocal()
	l.stuck = true
	s, _ := connected(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Hold(ctx, "node-1", "vol-1", false)
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The node may succeed after the array has given up; nothing may stay held.
func TestHoldThatSucceedsTooLateIsReleased(t *testing.T) {
	t.Parallel()
	l := newLocal()
	l.stubborn, l.ended = make(chan struct{}), make(chan struct{})
	s, _ := connected(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Hold(ctx, "node-1", "vol-1", false)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	receive(t, l.ended)
	close(l.stubborn)
	require.Equal(t, "vol-1", receive(t, l.held))
	require.Equal(t, "vol-1", receive(t, l.released))
}

func TestHoldEndsWhenTheArrayGoes(t *testing.T) {
	t.Parallel()
	l := newLocal()
	s, c := connected(t, l)
	release, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.NoError(t, err)
	s.stop()
	require.Equal(t, "vol-1", receive(t, l.released))
	require.ErrorIs(t, release(t.Context()), backends.ErrUnavailable, "what was cut may not be consistent")
	require.Error(t, exists(c, t.Context(), "vol-1"))
}

func TestHoldEndsWhenTheNodeGoes(t *testing.T) {
	t.Parallel()
	l := newLocal()
	s := serve(t, socket(t), link.ServerOptions{})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	stop := run(t, c, l)
	ready(t, c)
	release, err := s.Hold(t.Context(), "node-1", "vol-1", false)
	require.NoError(t, err)
	stop()
	require.Len(t, l.released, 1, "Run returns when nothing is held")
	err = release(t.Context())
	require.ErrorIs(t, err, backends.ErrUnavailable)
	require.ErrorContains(t, err, "release volume vol-1 on node node-1")
}

func TestHoldUnderWayWhenTheNodeGoes(t *testing.T) {
	t.Parallel()
	l := newLocal()
	l.stuck = true
	s := serve(t, socket(t), link.ServerOptions{})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	stop := run(t, c, l)
	ready(t, c)
	done := make(chan error, 1)
	go func() {
		_, err := s.Hold(t.Context(), "node-1", "vol-1", false)
		done <- err
	}()
	stop()
	require.ErrorIs(t, receive(t, done), backends.ErrUnavailable)
	require.Empty(t, l.released)
}

// A node that answers nothing must not keep the array waiting past its context,
// nor a newcomer from replacing it while the array waits for it.
func TestHoldOnADeadNode(t *testing.T) {
	t.Parallel()
	s := serve(t, socket(t), link.ServerOptions{})
	silentNode(t, s)
	done := make(chan error, 1)
	go func() {
		_, err := s.Hold(t.Context(), "node-1", "vol-1", false)
		done <- err
	}()
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	run(t, c, newLocal())
	ready(t, c)
	// It asked the dead session and learns of its end, or the new one.
	if err := receive(t, done); err != nil {
		require.ErrorIs(t, err, backends.ErrUnavailable)
	}
}
