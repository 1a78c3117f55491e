package node_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/node"
	"github.com/csiemu/csiemu/internal/record"
)

// FuzzRecords opens a node over a record that holds anything: it is set aside, or
// its volume can be asked for and taken away. Nothing was mounted, so nothing may
// be removed.
func FuzzRecords(f *testing.F) {
	const id = "vol-1"
	for _, data := range []string{
		`{}`, `null`, `[]`, `{"id":"vol-1"}`, `{"id":"vol-1","stagingPath":"/s"}`,
		`{"id":"vol-1","stagingPath":"/s","whole":true,"staged":{"VolumeID":"vol-1","Path":"/s","DeviceID":"d"},"targets":[{"path":"/t"},{"path":"/t"}]}`,
		`{"id":"vol-1","stagingPath":"/s","whole":true,"held":true,"staged":{"Path":"/other","Block":true}}`,
		`{"id":"vol-1","stagingPath":"/s","ephemeral":true,"local":true,"targets":[{"path":"/t","readOnly":true}]}`,
	} {
		f.Add([]byte(data))
	}
	sum := sha256.Sum256([]byte(id))
	f.Fuzz(func(t *testing.T, data []byte) {
		store := record.NewMemory()
		if store.Put(t.Context(), "volumes", hex.EncodeToString(sum[:16]), json.RawMessage(data)) != nil {
			return // no JSON at all, which package record finds out
		}
		backend := memory.New(memory.Options{})
		half, err := backend.Node(backends.NodeConfig{})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), node.Options{
			Name: "node-1", Backend: half, Array: &array{backend: backend, local: map[string]bool{}},
			Store: store, StageDir: func() (string, error) { return t.TempDir(), nil }, Attaches: true, Stages: true,
		})
		require.NoError(t, err)
		for _, known := range n.Volumes() {
			require.Equal(t, id, known)
		}
		_, err = n.Stats(t.Context(), id, "/t")
		require.ErrorIs(t, err, backends.ErrNotFound)
		target := filepath.Join(t.TempDir(), "target")
		require.Error(t, n.Publish(t.Context(), node.PublishRequest{VolumeID: id, StagingPath: "/s", Path: target}))
		require.NoDirExists(t, target)
		if err := n.Unpublish(t.Context(), id, "/t"); err != nil {
			require.ErrorIs(t, err, backends.ErrPrecondition, "the record was set aside")
		}
		require.NoError(t, n.Close())
	})
}
