package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// need skips a test of a backend that this machine cannot have.
func need(t *testing.T, backend string) {
	t.Helper()
	if backend != "memory" {
		testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure)
	}
}

func TestDemoShowsWholeLivesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	for backend, want := range map[string][]string{
		"loop":   {"ext4 on loop", "xfs on loop", "btrfs on loop", "raw block on loop", "4 volumes in "},
		"tmpfs":  {"tmpfs", "raw block on tmpfs", "2 volumes in "},
		"memory": {"file system on memory", "raw block on memory", "2 volumes in "},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			need(t, backend)
			var out bytes.Buffer
			dir := t.TempDir()
			require.NoError(t, Run(t.Context(), Options{Backend: backend, Dir: dir, DataBytes: 2 * mib, Out: &out}), "%s", &out)
			for _, line := range want {
				require.Regexp(t, "(?m)^"+line, out.String())
			}
			require.Contains(t, out.String(), "all equal.\nNothing is left")
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

var errInterrupted = errors.New("interrupted by the test")

// interrupter cancels when a step has been printed.
type interrupter struct {
	bytes.Buffer
	step   string
	cancel context.CancelCauseFunc
}

func (i *interrupter) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), "  "+i.step+" ") {
		i.cancel(errInterrupted)
	}
	return i.Buffer.Write(line)
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"loop", "tmpfs", "memory"} {
		steps := []string{"create", "stage", "publish", "write", "snapshot", "restore", "clone", "expand", "restart", "unpublish", "use again"}
		if testing.Short() {
			steps = []string{"restart"}
		}
		for _, step := range steps {
			t.Run(backend+" after "+step, func(t *testing.T) {
				t.Parallel()
				need(t, backend)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				out := &interrupter{step: step, cancel: cancel}
				dir := t.TempDir()
				require.ErrorIs(t, Run(ctx, Options{Backend: backend, Dir: dir, DataBytes: 2 * mib, Out: out}), errInterrupted, "%s", &out.Buffer)
				left, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, left)
			})
		}
	}
}
