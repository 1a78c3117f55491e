//go:build linux

package loop_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

const mebibyte = 1 << 20

// rig is a store with a backend and one node, which stands for an array and a
// node that shares its kernel.
type rig struct {
	t       testing.TB
	dir     string // the store
	work    string // staging paths, targets, device nodes
	backend *loop.Backend
	node    backends.Node
}

func TestMain(m *testing.M) { testenv.Main(m) }

// newRig opens a store on a tmpfs.
func newRig(t testing.TB) *rig {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.FSMount, kernel.MountSetattr, kernel.OpenAt2)
	return newRigAt(t, tmpfsDir(t))
}

func newRigAt(t testing.TB, dir string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, work: t.TempDir()}
	r.open()
	return r
}

// open makes the backend and the node, as a new process does. The node of the
// process before has let go of its devices.
func (r *rig) open() {
	r.t.Helper()
	if r.node != nil {
		require.NoError(r.t, r.node.Close())
	}
	b, err := loop.New(loop.Options{Dir: r.dir})
	require.NoError(r.t, err)
	nodeDir := filepath.Join(r.work, "node")
	require.NoError(r.t, os.MkdirAll(nodeDir, 0o755))
	n, err := b.Node(backends.NodeConfig{Dir: nodeDir})
	require.NoError(r.t, err)
	r.backend, r.node = b, n
	r.t.Cleanup(func() {
		if r.node == n {
			require.NoError(r.t, n.Close())
		}
		require.NoError(r.t, b.Close())
	})
}

func newID(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) }

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

// create makes a thin volume.
func (r *rig) create(size int64) backends.Volume {
	r.t.Helper()
	v := r.volume(backends.Layout{SizeBytes: size})
	require.NoError(r.t, r.backend.Create(r.t.Context(), v))
	return v
}

// snapshot cuts v without holding its writers.
func (r *rig) snapshot(v backends.Volume) backends.Snapshot {
	r.t.Helper()
	s := r.snapshotName(v)
	require.NoError(r.t, r.backend.Snapshot(r.t.Context(), v, s))
	return s
}

func (r *rig) snapshotName(v backends.Volume) backends.Snapshot {
	r.t.Helper()
	id := newID("snap")
	dir := filepath.Join(r.dir, "snapshots", id)
	require.NoError(r.t, os.MkdirAll(dir, 0o755))
	return backends.Snapshot{ID: id, Dir: dir, Layout: v.Layout}
}

func (r *rig) restore(s backends.Snapshot, size int64) backends.Volume {
	r.t.Helper()
	v := r.volume(backends.Layout{SizeBytes: size})
	require.NoError(r.t, r.backend.Restore(r.t.Context(), s, v))
	return v
}

// attach attaches v for the length of the test.
func (r *rig) attach(v backends.Volume, readOnly bool) (backends.Attachment, map[string]string) {
	r.t.Helper()
	a := backends.Attachment{ID: newID("att"), ReadOnly: readOnly}
	r.t.Cleanup(func() { require.NoError(r.t, r.backend.Detach(context.Background(), v, a)) })
	pc, err := r.backend.Attach(r.t.Context(), v, a)
	require.NoError(r.t, err)
	return a, pc
}

// stageRequest asks for v at a new staging path.
func (r *rig) stageRequest(v backends.Volume, publishContext map[string]string) backends.StageRequest {
	r.t.Helper()
	return backends.StageRequest{VolumeID: v.ID, PublishContext: publishContext, Path: r.newDir("stage")}
}

func (r *rig) newDir(kind string) string {
	r.t.Helper()
	dir := filepath.Join(r.work, newID(kind))
	require.NoError(r.t, os.Mkdir(dir, 0o755))
	return dir
}

// stage stages for the length of the test.
func (r *rig) stage(q backends.StageRequest) backends.Staged {
	r.t.Helper()
	s, err := r.node.Stage(r.t.Context(), q)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, r.node.Unstage(context.Background(), s)) })
	return s
}

// mounted attaches v and stages it with a file system.
func (r *rig) mounted(v backends.Volume, fsType string, flags ...string) backends.Staged {
	r.t.Helper()
	_, pc := r.attach(v, false)
	q := r.stageRequest(v, pc)
	q.FSType, q.MountFlags = fsType, flags
	return r.stage(q)
}

// publish publishes for the length of the test and returns the target.
func (r *rig) publish(s backends.Staged, q backends.PublishRequest) string {
	r.t.Helper()
	if q.Path == "" {
		q.Path = r.target()
	}
	require.NoError(r.t, r.node.Publish(r.t.Context(), s, q))
	r.t.Cleanup(func() { require.NoError(r.t, r.node.Unpublish(context.Background(), s, q.Path)) })
	return q.Path
}

// target is a path whose parent exists.
func (r *rig) target() string { return filepath.Join(r.newDir("pod"), "mount") }

// held is v as a record has it.
func held(v backends.Volume, a *backends.Attachment) backends.Held {
	return backends.Held{Volume: v, Attachment: a}
}

// reopen reopens the store and fails the test on any report.
func (r *rig) reopen(volumes ...backends.Held) {
	r.t.Helper()
	require.Empty(r.t, r.reports(volumes...))
}

// reports reopens the store and returns what was reported of each volume.
func (r *rig) reports(volumes ...backends.Held) map[string]error {
	r.t.Helper()
	got := map[string]error{}
	err := r.backend.Reopen(r.t.Context(), volumes, nil, func(id string, err error) { got[id] = err })
	require.NoError(r.t, err)
	return got
}

// status is the state of the device that carries a name.
func status(t *testing.T, name string) loopdev.Status {
	t.Helper()
	d, err := loopdev.Find(t.Context(), name, -1, loopdev.Options{})
	require.NoError(t, err)
	st, err := d.Status()
	require.NoError(t, err)
	return st
}

// requireNoDevice waits for a moment: a child that another test is just starting,
// a holder or a mkfs, has all files of this process until it calls exec.
func requireNoDevice(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := loopdev.Find(t.Context(), name, -1, loopdev.Options{})
		return errors.Is(err, loopdev.ErrNotBound)
	}, 5*time.Second, 5*time.Millisecond, "a device carries %s", name)
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
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// digest is a hash of a file's bytes.
func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

func image(v backends.Volume) string { return filepath.Join(v.Dir, "image") }

// stat is what the kernel says of a file.
func stat(t testing.TB, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	return st
}

// tmpfsDir is a store on a tmpfs of its own. Package mount waits for children of
// this process that are forked and still have copies of its descriptors.
func tmpfsDir(t testing.TB) string {
	t.Helper()
	testenv.Need(t, kernel.Tmpfs)
	dir := t.TempDir()
	require.NoError(t, mount.Mount(t.Context(), "store", dir, "tmpfs", mount.Options{}))
	t.Cleanup(func() { require.NoError(t, mount.Unmount(dir)) })
	return dir
}
