package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/fault"
)

// interrupted interrupts a row while its call to attach hangs, of a driver with
// further faults, and returns the exit status, what was said and what is left.
func interrupted(t *testing.T, faults ...string) (code int, said string, left []emulator.Volume) {
	t.Helper()
	emu, err := emulator.New(t.Context(), emulator.Config{Backend: memory.New(memory.Options{}), Profile: emulator.DefaultProfile("memory"), Nodes: []emulator.Node{{Name: "n"}}})
	require.NoError(t, err)
	for _, text := range append(faults, "ControllerPublishVolume: hang") {
		rule, err := fault.Parse(text)
		require.NoError(t, err)
		_, err = emu.Inject(t.Context(), rule)
		require.NoError(t, err)
	}
	dir, err := os.MkdirTemp("", "c") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	l, err := emulator.Listen(serving, endpoint)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- emu.ServeOn(serving, l) }()
	defer func() {
		stop()
		require.NoError(t, <-served)
		require.NoError(t, emu.Close())
	}()

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for e := range emu.Journal().Follow(ctx, 0) {
			if e.Method == "CreateVolume" {
				break // it has ended; the next call hangs
			}
		}
	}()
	var out, errs bytes.Buffer
	code = run(ctx, []string{
		"conform", "--endpoint", endpoint, "--dir", dir, "--no-data", "--timeout", "10s",
		"--run", "^ControllerPublishVolume: refuses a node that does not exist",
	}, func(string) (string, bool) { return "", false }, &out, &errs)
	left, err = emu.Volumes(t.Context())
	require.NoError(t, err)
	return code, errs.String(), left
}

func TestInterruptedRowTakesAwayWhatItMade(t *testing.T) {
	t.Parallel()
	code, said, left := interrupted(t)
	require.Equal(t, exitFailed, code)
	require.Contains(t, said, `interrupted after 0 of 1 rows: row "ControllerPublishVolume: refuses a node that does not exist" left nothing behind`)
	require.Empty(t, left)
}

func TestInterruptedRowNamesWhatItLeft(t *testing.T) {
	t.Parallel()
	code, said, left := interrupted(t, "DeleteVolume: return(INTERNAL)")
	require.Equal(t, exitFailed, code)
	require.Len(t, left, 1)
	require.Contains(t, said, "left behind: volume ")
	require.Contains(t, said, left[0].ID)
}
