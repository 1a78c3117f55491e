package memory_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
)

// parts are a backend, a node with a directory of its own, and a volume that is
// attached.
type parts struct {
	t              *testing.T
	dir            string
	backend        *memory.Backend
	node           backends.Node
	volume         backends.Volume
	attachment     backends.Attachment
	publishContext map[string]string
}

func newParts(t *testing.T) *parts {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	p := &parts{t: t, dir: dir, backend: memory.New(memory.Options{})}
	require.NoError(t, os.Mkdir(p.path("node"), 0o700))
	p.node = p.openNode(p.backend)
	p.volume = backends.Volume{ID: "vol-1", Layout: backends.Layout{SizeBytes: 1 << 30}}
	p.attachment = backends.Attachment{ID: "att-1"}
	require.NoError(t, p.backend.Create(t.Context(), p.volume))
	p.publishContext, err = p.backend.Attach(t.Context(), p.volume, p.attachment)
	require.NoError(t, err)
	return p
}

func (p *parts) path(names ...string) string {
	return filepath.Join(append([]string{p.dir}, names...)...)
}

func (p *parts) openNode(b *memory.Backend) backends.Node {
	p.t.Helper()
	n, err := b.Node(backends.NodeConfig{Dir: p.path("node")})
	require.NoError(p.t, err)
	return n
}

func (p *parts) request() backends.StageRequest {
	return backends.StageRequest{VolumeID: p.volume.ID, PublishContext: p.publishContext, Path: p.path("staging")}
}

func (p *parts) stage() backends.Staged {
	p.t.Helper()
	s, err := p.node.Stage(p.t.Context(), p.request())
	require.NoError(p.t, err)
	return s
}

func (p *parts) publish(s backends.Staged, name string) string {
	p.t.Helper()
	require.NoError(p.t, p.node.Publish(p.t.Context(), s, backends.PublishRequest{Path: p.path(name)}))
	return p.path(name)
}

func TestUnpublishRemovesWhatAWorkloadWrote(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	target := p.publish(p.stage(), "target")
	require.NoError(t, os.MkdirAll(filepath.Join(target, "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(target, "a", "b", "file"), []byte("data"), 0o400))
	outside := p.path("outside")
	require.NoError(t, os.Mkdir(outside, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(target, "link")))
	require.NoError(t, p.node.Unpublish(t.Context(), p.stage(), target))
	require.NoDirExists(t, target)
	require.FileExists(t, filepath.Join(outside, "file"))
}

func TestUnpublishRemovesNothingElse(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(p *parts, target string){
		"a target that the caller made": func(p *parts, target string) {
			require.NoError(p.t, os.Mkdir(target, 0o700))
			require.NoError(p.t, os.WriteFile(filepath.Join(target, "theirs"), nil, 0o600))
			p.publish(p.stage(), "target")
		},
		"a target that was never published": func(p *parts, target string) {
			p.stage()
			require.NoError(p.t, os.Mkdir(target, 0o700))
			require.NoError(p.t, os.WriteFile(filepath.Join(target, "theirs"), nil, 0o600))
		},
		"a link in the place of the target": func(p *parts, target string) {
			p.publish(p.stage(), "target")
			require.NoError(p.t, os.Remove(target))
			require.NoError(p.t, os.Mkdir(p.path("elsewhere"), 0o700))
			require.NoError(p.t, os.WriteFile(p.path("elsewhere", "theirs"), nil, 0o600))
			require.NoError(p.t, os.Symlink(p.path("elsewhere"), target))
		},
		"a file in the place of the target": func(p *parts, target string) {
			p.publish(p.stage(), "target")
			require.NoError(p.t, os.Remove(target))
			require.NoError(p.t, os.WriteFile(target, []byte("theirs"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			target := p.path("target")
			before(p, target)
			kept := tree(t, p.path())
			for range 2 {
				require.NoError(t, p.node.Unpublish(t.Context(), p.stage(), target))
				published, err := p.node.IsPublished(t.Context(), p.stage(), target)
				require.NoError(t, err)
				require.False(t, published)
			}
			require.Equal(t, kept, tree(t, p.path()))
		})
	}
}

// tree lists all files but the notes of the node.
func tree(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if e.Name() == "node" {
			return filepath.SkipDir
		}
		names = append(names, path+" "+e.Type().String())
		return err
	}))
	return names
}

func TestUnpublishThroughALink(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	require.NoError(t, os.Mkdir(p.path("pod"), 0o700))
	target := p.publish(p.stage(), filepath.Join("pod", "target"))
	require.NoError(t, os.Rename(p.path("pod"), p.path("moved")))
	require.NoError(t, os.Symlink(p.path("moved"), p.path("pod")))
	require.ErrorIs(t, p.node.Unpublish(t.Context(), p.stage(), target), backends.ErrInvalid)
	require.DirExists(t, p.path("moved", "target"))
}

func TestALaterProcessCleansUp(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, note string){
		"with whole notes": nil,
		// A process that is killed while it writes a note has made nothing yet.
		"with an empty note": func(t *testing.T, note string) { require.NoError(t, os.Truncate(note, 0)) },
		"with half a note":   func(t *testing.T, note string) { require.NoError(t, os.Truncate(note, 20)) },
		"with another's note": func(t *testing.T, note string) {
			require.NoError(t, os.WriteFile(note, []byte(`{"path":"/x"}`), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			s := p.stage()
			target := p.publish(s, "target")
			require.NoError(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o600))
			notes, err := filepath.Glob(p.path("node", "*"))
			require.NoError(t, err)
			require.Len(t, notes, 2)
			if damage != nil {
				for _, note := range notes {
					damage(t, note)
				}
			}
			later := memory.New(memory.Options{})
			p.node = p.openNode(later)
			require.NoError(t, p.node.Unpublish(t.Context(), s, target))
			require.NoError(t, p.node.Unstage(t.Context(), s))
			left, err := os.ReadDir(p.path("node"))
			require.NoError(t, err)
			require.Empty(t, left)
			if damage == nil {
				require.NoDirExists(t, target)
				require.NoDirExists(t, s.Path)
			} else {
				require.FileExists(t, filepath.Join(target, "file"), "nobody knows whose it is")
			}
		})
	}
}

func TestUnstageKeepsWhatTheCallerPutThere(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	s := p.stage()
	theirs := filepath.Join(s.Path, "vol_data.json")
	require.NoError(t, os.WriteFile(theirs, nil, 0o600))
	require.NoError(t, p.node.Unstage(t.Context(), s))
	require.FileExists(t, theirs)
	staged, err := p.node.IsStaged(t.Context(), s)
	require.NoError(t, err)
	require.False(t, staged)
}

func TestSizeFollowsTheArray(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	s := p.stage()
	require.EqualValues(t, 1<<30, s.SizeBytes)
	larger := p.volume
	larger.SizeBytes *= 2
	require.NoError(t, p.backend.Grow(t.Context(), larger))
	stats, err := p.node.Stats(t.Context(), s, s.Path)
	require.NoError(t, err)
	require.Equal(t, backends.Stats{TotalBytes: 2 << 30, AvailableBytes: 2 << 30}, stats)
	size, err := p.node.Expand(t.Context(), s)
	require.NoError(t, err)
	require.EqualValues(t, 2<<30, size)

	// A process that is a node only has the record and no more.
	p.node = p.openNode(memory.New(memory.Options{}))
	size, err = p.node.Expand(t.Context(), s)
	require.NoError(t, err)
	require.EqualValues(t, 1<<30, size)
	require.Equal(t, s, p.stage(), "a publish context is all that it needs")
}

func TestStageAfterTheAttachmentHasEnded(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	require.NoError(t, p.backend.Detach(t.Context(), p.volume, p.attachment))
	_, err := p.node.Stage(t.Context(), p.request())
	require.ErrorIs(t, err, backends.ErrNotFound)
	require.ErrorContains(t, err, "it is not attached as att-1")
}

func TestWishes(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(r *backends.StageRequest){
		"an unknown type":     func(r *backends.StageRequest) { r.FSType = "zfs" },
		"a group by its name": func(r *backends.StageRequest) { r.Group = "wheel" },
		"the group of nobody": func(r *backends.StageRequest) { r.Group = "4294967295" },
		"an empty flag":       func(r *backends.StageRequest) { r.MountFlags = []string{"ro", ""} },
		"a flag with newline": func(r *backends.StageRequest) { r.MountFlags = []string{"ro\nrw"} },
		"no size": func(r *backends.StageRequest) {
			r.PublishContext = map[string]string{memory.AttachmentKey: "att-1", memory.SizeKey: "much"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParts(t)
			r := p.request()
			edit(&r)
			_, err := p.node.Stage(t.Context(), r)
			require.ErrorIs(t, err, backends.ErrInvalid)
			require.NoDirExists(t, r.Path)
		})
	}
	t.Run("flags and group are kept", func(t *testing.T) {
		t.Parallel()
		p := newParts(t)
		r := p.request()
		r.MountFlags, r.Group, r.FSType = []string{"noatime", "ro"}, "1234", "xfs"
		s, err := p.node.Stage(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "gid=1234,noatime,ro", s.Options)
		require.Equal(t, "xfs", s.FSType)
		target := p.publish(s, "target")
		info, err := os.Stat(target)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o222, "the options say read-only")
	})
}

func TestReadOnlyTargets(t *testing.T) {
	t.Parallel()
	for _, block := range []bool{false, true} {
		p := newParts(t)
		r := p.request()
		r.Block = block
		s, err := p.node.Stage(t.Context(), r)
		require.NoError(t, err)
		q := backends.PublishRequest{Path: p.path("target"), ReadOnly: true}
		require.NoError(t, p.node.Publish(t.Context(), s, q))
		info, err := os.Stat(q.Path)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o222)
		require.Equal(t, block, info.Mode().IsRegular())
		require.NoError(t, p.node.Unpublish(t.Context(), s, q.Path))
		_, err = os.Lstat(q.Path)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

func TestParametersOfTheLoopBackendAreKnown(t *testing.T) {
	t.Parallel()
	b := memory.New(memory.Options{})
	l, err := b.Plan(backends.Request{Block: true, Parameters: map[string]string{"provisioning": "thick", "directIO": "true"}})
	require.NoError(t, err)
	require.Equal(t, backends.Layout{SizeBytes: backends.DefaultBytes, Block: true, Thick: true, DirectIO: true}, l)
	_, err = b.Plan(backends.Request{Parameters: map[string]string{"colour": "blue"}})
	require.EqualError(t, err, `plan volume: parameter "colour" is not known; known are directIO, provisioning`)
	_, err = b.Plan(backends.Request{Parameters: map[string]string{"provisioning": "fat"}})
	require.EqualError(t, err, `plan volume: parameter provisioning cannot be "fat" (known are thick, thin): invalid argument`)
}

// TestSynctest leads a volume through its life in a bubble, where a goroutine
// that is left or a wait for the clock would end the test.
func TestSynctest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		b := memory.New(memory.Options{})
		n, err := b.Node(backends.NodeConfig{})
		require.NoError(t, err)
		v := backends.Volume{ID: "vol-1", Layout: backends.Layout{SizeBytes: 1 << 20}}
		a := backends.Attachment{ID: "att-1"}
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, b.Create(t.Context(), v))
			pc, err := b.Attach(t.Context(), v, a)
			require.NoError(t, err)
			s, err := n.Stage(t.Context(), backends.StageRequest{VolumeID: v.ID, PublishContext: pc, Path: filepath.Join(dir, "staging")})
			require.NoError(t, err)
			target := filepath.Join(dir, "target")
			require.NoError(t, n.Publish(t.Context(), s, backends.PublishRequest{Path: target}))
			require.DirExists(t, target)
			require.NoError(t, n.Unpublish(t.Context(), s, target))
			require.NoError(t, n.Unstage(t.Context(), s))
			require.NoError(t, b.Detach(t.Context(), v, a))
			require.NoError(t, b.Delete(t.Context(), v))
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		synctest.Wait()
		require.Zero(t, time.Since(begun))
	})
}
