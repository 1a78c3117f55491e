package backendtest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// rig is a store with a backend and one node, as a caller has them. What it
// makes is undone when the test ends, and must leave nothing then.
type rig struct {
	t       *testing.T
	h       Harness
	store   string
	work    string // staging paths and targets
	backend backends.Backend
	node    backends.Node
}

func newRig(t *testing.T, h Harness) *rig {
	t.Helper()
	r := &rig{t: t, h: h, work: realDir(t)}
	if h.Store != nil {
		r.store = h.Store(t)
	} else {
		r.store = realDir(t)
	}
	r.open()
	return r
}

// realDir is a temporary directory without symbolic links on the way.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

// open makes backend and node anew, as a later process does.
func (r *rig) open() {
	r.t.Helper()
	if r.node != nil { // a process that ends lets go of what it has open
		require.NoError(r.t, r.node.Close())
	}
	b := r.h.Open(r.t, r.store)
	dir := filepath.Join(r.work, "node")
	require.NoError(r.t, os.MkdirAll(dir, 0o700))
	n, err := b.Node(backends.NodeConfig{Dir: dir})
	require.NoError(r.t, err)
	r.backend, r.node = b, n
	r.t.Cleanup(func() {
		if r.node == n {
			require.NoError(r.t, n.Close())
		}
		require.NoError(r.t, b.Close())
	})
}

// reopen is a process that ends and a later one that starts with the records
// of volumes and snapshots. It returns what was reported.
func (r *rig) reopen(volumes []backends.Held, snapshots []backends.Snapshot) map[string]error {
	r.t.Helper()
	r.open()
	reopener, ok := r.backend.(backends.Reopener)
	require.True(r.t, ok)
	reported := map[string]error{}
	err := reopener.Reopen(r.t.Context(), volumes, snapshots, func(id string, err error) { reported[id] = err })
	require.NoError(r.t, err)
	return reported
}

func newID(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) }

// plan settles the layout of a volume of size bytes.
func (r *rig) plan(a access, size int64) backends.Layout {
	r.t.Helper()
	req := backends.Request{RequiredBytes: size, LimitBytes: size, Block: a.block, Filesystem: !a.block}
	if a.fsType != "" {
		req.FSTypes = []string{a.fsType}
	}
	l, err := r.backend.Plan(req)
	require.NoError(r.t, err)
	require.Equal(r.t, size, l.SizeBytes)
	return l
}

// volume names a volume that has no bytes yet.
func (r *rig) volume(l backends.Layout) backends.Volume {
	r.t.Helper()
	id := newID("vol")
	v := backends.Volume{ID: id, Dir: r.dir("volumes", id), Layout: l}
	r.t.Cleanup(func() { r.delete(v) })
	return v
}

func (r *rig) dir(kind, id string) string {
	r.t.Helper()
	dir := filepath.Join(r.store, kind, id)
	require.NoError(r.t, os.MkdirAll(dir, 0o700))
	return dir
}

// delete deletes v and looks whether anything is left of it.
func (r *rig) delete(v backends.Volume) {
	r.t.Helper()
	require.NoError(r.t, r.backend.Delete(context.Background(), v))
	r.requireEmpty(v.Dir)
}

func (r *rig) requireEmpty(dir string) {
	r.t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(r.t, err)
	require.Empty(r.t, entries, "something is left in %s", dir)
}

// create makes an empty volume.
func (r *rig) create(a access) backends.Volume {
	r.t.Helper()
	v := r.volume(r.plan(a, a.bytes))
	require.NoError(r.t, r.backend.Create(r.t.Context(), v))
	return v
}

// snapshotOf names a snapshot of v that is not cut yet.
func (r *rig) snapshotOf(v backends.Volume) backends.Snapshot {
	r.t.Helper()
	id := newID("snap")
	s := backends.Snapshot{ID: id, Dir: r.dir("snapshots", id), Layout: v.Layout}
	r.t.Cleanup(func() {
		require.NoError(r.t, r.backend.DeleteSnapshot(context.Background(), s))
		r.requireEmpty(s.Dir)
	})
	return s
}

func (r *rig) snapshot(v backends.Volume) backends.Snapshot {
	r.t.Helper()
	s := r.snapshotOf(v)
	require.NoError(r.t, r.backend.Snapshot(r.t.Context(), v, s))
	return s
}

// newDir makes a directory of the caller.
func (r *rig) newDir(kind string) string {
	r.t.Helper()
	dir := filepath.Join(r.work, newID(kind))
	require.NoError(r.t, os.Mkdir(dir, 0o700))
	return dir
}

// target is a path that does not exist, in a directory that does.
func (r *rig) target() string { return filepath.Join(r.newDir("pod"), "mount") }

// use is a volume on its way to a workload.
type use struct {
	r      *rig
	a      access
	volume backends.Volume

	attachment     backends.Attachment
	publishContext map[string]string
	staged         backends.Staged
	// path is the first publication that stands.
	path string
}

func (r *rig) use(v backends.Volume, a access) *use { return &use{r: r, a: a, volume: v} }

// attach attaches the volume until the test ends or detach is called.
func (u *use) attach() {
	u.r.t.Helper()
	u.attachAs(backends.Attachment{ID: newID("att")})
}

func (u *use) attachAs(a backends.Attachment) {
	u.r.t.Helper()
	pc, err := u.r.backend.Attach(u.r.t.Context(), u.volume, a)
	require.NoError(u.r.t, err)
	u.attachment, u.publishContext = a, pc
	u.r.t.Cleanup(func() { require.NoError(u.r.t, u.r.backend.Detach(context.Background(), u.volume, a)) })
}

func (u *use) detach() {
	u.r.t.Helper()
	require.NoError(u.r.t, u.r.backend.Detach(u.r.t.Context(), u.volume, u.attachment))
}

func (u *use) stageRequest() backends.StageRequest {
	return backends.StageRequest{
		VolumeID: u.volume.ID, PublishContext: u.publishContext, Path: u.r.newDir("stage"),
		Block: u.a.block, FSType: u.a.fsType, ReadOnly: u.attachment.ReadOnly,
	}
}

// stage stages the volume until the test ends or unstage is called.
func (u *use) stage() {
	u.r.t.Helper()
	s, err := u.r.node.Stage(u.r.t.Context(), u.stageRequest())
	require.NoError(u.r.t, err)
	u.staged = s
	u.r.t.Cleanup(func() { require.NoError(u.r.t, u.r.node.Unstage(context.Background(), s)) })
	u.requireStaged(true)
}

func (u *use) unstage() {
	u.r.t.Helper()
	require.NoError(u.r.t, u.r.node.Unstage(u.r.t.Context(), u.staged))
	if !u.isDevice() {
		u.requireStaged(false)
	}
}

// isDevice is true for a volume that stands as long as its device: nothing is
// mounted at its staging path.
func (u *use) isDevice() bool { return u.a.block && u.r.h.lacks(u.a, Devices) == "" }

// publish publishes the volume at a new target until the test ends or
// unpublish is called.
func (u *use) publish(q backends.PublishRequest) string {
	u.r.t.Helper()
	if q.Path == "" {
		q.Path = u.r.target()
	}
	require.NoError(u.r.t, u.r.node.Publish(u.r.t.Context(), u.staged, q))
	s := u.staged
	u.r.t.Cleanup(func() { require.NoError(u.r.t, u.r.node.Unpublish(context.Background(), s, q.Path)) })
	if u.path == "" {
		u.path = q.Path
	}
	u.requirePublished(q.Path, true)
	return q.Path
}

func (u *use) unpublish(path string) {
	u.r.t.Helper()
	require.NoError(u.r.t, u.r.node.Unpublish(u.r.t.Context(), u.staged, path))
	u.requirePublished(path, false)
	if u.path == path {
		u.path = ""
	}
	_, err := os.Lstat(path)
	require.ErrorIs(u.r.t, err, os.ErrNotExist, "the target is removed")
}

// up brings the volume to a target, down brings it all the way back.
func (u *use) up() {
	u.r.t.Helper()
	u.attach()
	u.stage()
	u.publish(backends.PublishRequest{})
}

func (u *use) down() {
	u.r.t.Helper()
	u.unpublish(u.path)
	u.unstage()
	if !u.a.block {
		u.r.requireEmpty(u.staged.Path)
	}
	u.detach()
	u.requireStaged(false)
}

func (u *use) requireStaged(want bool) {
	u.r.t.Helper()
	got, err := u.r.node.IsStaged(u.r.t.Context(), u.staged)
	require.NoError(u.r.t, err)
	require.Equal(u.r.t, want, got, "IsStaged")
}

func (u *use) requirePublished(path string, want bool) {
	u.r.t.Helper()
	got, err := u.r.node.IsPublished(u.r.t.Context(), u.staged, path)
	require.NoError(u.r.t, err)
	require.Equal(u.r.t, want, got, "IsPublished")
}

// held is the record of the volume with its attachment.
func (u *use) held() backends.Held {
	a := u.attachment
	return backends.Held{Volume: u.volume, Attachment: &a}
}
