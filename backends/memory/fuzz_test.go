package memory_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
)

// FuzzNotes opens a node over a note that holds anything: only a note of the
// place that its name says has things taken away.
func FuzzNotes(f *testing.F) {
	for _, note := range []string{
		``, `{}`, `{"path":"DIR/target","volumeID":"vol-1","made":true}`, `{"path":"DIR/target","volumeID":"vol-2","made":true}`,
		`{"path":"DIR/target","volumeID":"vol-1"}`, `{"path":"DIR/target","volumeID":"vol-1","staged":true,"made":true}`, `{"path":"DIR"}`,
	} {
		f.Add([]byte(note))
	}
	f.Fuzz(func(t *testing.T, note []byte) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		notes, target, other := filepath.Join(dir, "node"), filepath.Join(dir, "target"), filepath.Join(dir, "other")
		for _, d := range []string{notes, target, other} {
			require.NoError(t, os.Mkdir(d, 0o700))
		}
		sum := sha256.Sum256([]byte(target))
		name := filepath.Join(notes, fmt.Sprintf("place-%x.json", sum[:16]))
		require.NoError(t, os.WriteFile(name, []byte(strings.ReplaceAll(string(note), "DIR", dir)), 0o600))
		n, err := memory.New(memory.Options{}).Node(backends.NodeConfig{Dir: notes})
		require.NoError(t, err)
		published, err := n.IsPublished(t.Context(), backends.Staged{VolumeID: "vol-1"}, target)
		require.NoError(t, err)
		for _, path := range []string{target, other} {
			require.NoError(t, n.Unpublish(t.Context(), backends.Staged{VolumeID: "vol-1"}, path))
		}
		require.DirExists(t, other)
		if !published {
			require.DirExists(t, target)
		}
	})
}
