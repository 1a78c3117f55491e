//go:build linux

package tmpfs_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const mebibyte = 1 << 20

// rig is a store with a backend and one node.
type rig struct {
	t       *testing.T
	dir     string // the store
	work    string // staging paths, targets, device nodes
	backend *tmpfs.Backend
	node    backends.Node
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Tmpfs, kernel.Loop, kernel.FSMount, kernel.MountSetattr, kernel.OpenAt2)
	r := &rig{t: t, dir: t.TempDir(), work: t.TempDir()}
	r.open()
	return r
}

// open makes the backend and the node, as a new process does.
func (r *rig) open() {
	r.t.Helper()
	b, err := tmpfs.New(tmpfs.Options{Dir: r.dir})
	require.NoError(r.t, err)
	nodeDir := filepath.Join(r.work, "node")
	require.NoError(r.t, os.MkdirAll(nodeDir, 0o755))
	n, err := b.Node(backends.NodeConfig{Dir: nodeDir})
	require.NoError(r.t, err)
	r.backend, r.node = b, n
	r.t.Cleanup(func() {
		require.NoError(r.t, n.Close())
		require.NoError(r.t, b.Close())
	})
}

func newID(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) }

func (r *rig) newDir(kind string) string {
	r.t.Helper()
	dir := filepath.Join(r.work, newID(kind))
	require.NoError(r.t, os.Mkdir(dir, 0o755))
	return dir
}

// volume returns the name of a volume that does not exist yet.
func (r *rig) volume(l backends.Layout) backends.Volume {
	r.t.Helper()
	id := newID("vol")
	dir := filepath.Join(r.dir, "volumes", id)
	require.NoError(r.t, os.MkdirAll(dir, 0o755))
	v := backends.Volume{ID: id, Dir: dir, Layout: l}
	r.t.Cleanup(func() { require.NoError(r.t, r.backend.Delete(context.Background(), v)) })
	return v
}

func (r *rig) create(l backends.Layout) backends.Volume {
	r.t.Helper()
	v := r.volume(l)
	require.NoError(r.t, r.backend.Create(r.t.Context(), v))
	return v
}

func (r *rig) snapshot(v backends.Volume) backends.Snapshot {
	r.t.Helper()
	id := newID("snap")
	dir := filepath.Join(r.dir, "snapshots", id)
	require.NoError(r.t, os.MkdirAll(dir, 0o755))
	s := backends.Snapshot{ID: id, Dir: dir, Layout: v.Layout}
	r.t.Cleanup(func() { require.NoError(r.t, r.backend.DeleteSnapshot(context.Background(), s)) })
	require.NoError(r.t, r.backend.Snapshot(r.t.Context(), v, s))
	return s
}

func (r *rig) request(v backends.Volume) backends.StageRequest {
	r.t.Helper()
	a := backends.Attachment{ID: newID("att")}
	r.t.Cleanup(func() { require.NoError(r.t, r.backend.Detach(context.Background(), v, a)) })
	pc, err := r.backend.Attach(r.t.Context(), v, a)
	require.NoError(r.t, err)
	return backends.StageRequest{VolumeID: v.ID, PublishContext: pc, Path: r.newDir("stage")}
}

// stage stages for the length of the test.
func (r *rig) stage(q backends.StageRequest) backends.Staged {
	r.t.Helper()
	s, err := r.node.Stage(r.t.Context(), q)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, r.node.Unstage(context.Background(), s)) })
	return s
}

// publish publishes for the length of the test and returns the target.
func (r *rig) publish(s backends.Staged, q backends.PublishRequest) string {
	r.t.Helper()
	if q.Path == "" {
		q.Path = filepath.Join(r.newDir("pod"), "mount")
	}
	require.NoError(r.t, r.node.Publish(r.t.Context(), s, q))
	r.t.Cleanup(func() { require.NoError(r.t, r.node.Unpublish(context.Background(), s, q.Path)) })
	return q.Path
}

// entryAt is what mountinfo says of a mount point.
func entryAt(t *testing.T, path string) mount.Entry {
	t.Helper()
	all, err := mount.ListUnder(path)
	require.NoError(t, err)
	require.NotEmpty(t, all, "nothing is mounted at %s", path)
	return all[len(all)-1]
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// stat is what the kernel says of a file.
func stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return st
}
