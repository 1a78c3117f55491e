package backendtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/testenv"
)

func isReadOnly(err error) bool { return testenv.IsReadOnly(err) }

// testPaths gives paths that cannot be used, and some that look like it.
func testPaths(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.attach()
		dir := r.newDir("paths")
		require.NoError(t, os.Symlink(r.newDir("elsewhere"), filepath.Join(dir, "link")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))

		for name, path := range map[string]string{
			"relative": "mount", "empty": "", "with a way up": dir + "/x/../mount", "with a NUL": dir + "/a\x00b",
			"the root": string(filepath.Separator),
		} {
			q := u.stageRequest()
			q.Path = path
			if !u.isDevice() { // nothing is mounted at its staging path
				_, err := r.node.Stage(t.Context(), q)
				require.ErrorIs(t, err, backends.ErrInvalid, "stage at a path %s", name)
			}
		}
		u.stage()
		for name, c := range map[string]struct {
			path string
			err  error
		}{
			"relative":                {"mount", backends.ErrInvalid},
			"empty":                   {"", backends.ErrInvalid},
			"with a way up":           {dir + "/x/../mount", backends.ErrInvalid},
			"with a slash at the end": {dir + "/mount/", backends.ErrInvalid},
			"with a newline":          {dir + "/a\nb", backends.ErrInvalid},
			"the root":                {string(filepath.Separator), backends.ErrInvalid},
			"through a link":          {filepath.Join(dir, "link", "mount"), backends.ErrInvalid},
			"that is a link":          {filepath.Join(dir, "link"), backends.ErrInvalid},
			"without a parent":        {filepath.Join(dir, "missing", "mount"), backends.ErrNotFound},
		} {
			err := r.node.Publish(t.Context(), u.staged, backends.PublishRequest{Path: c.path})
			require.ErrorIs(t, err, c.err, "publish at a path %s", name)
		}
		wrong := filepath.Join(dir, "file")
		if a.block {
			wrong = r.newDir("directory")
		}
		require.ErrorIs(t, r.node.Publish(t.Context(), u.staged, backends.PublishRequest{Path: wrong}), backends.ErrExists)
		require.FileExists(t, filepath.Join(dir, "file"))
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 2, "nothing was made")

		// Spaces and letters of any language are fine, and so is a target that
		// the caller made.
		odd := filepath.Join(dir, `it's a "näme", with spaces`)
		u.publish(backends.PublishRequest{Path: odd})
		u.unpublish(odd)
		made := filepath.Join(dir, "made")
		if a.block {
			require.NoError(t, os.WriteFile(made, nil, 0o600))
		} else {
			require.NoError(t, os.Mkdir(made, 0o700))
		}
		u.publish(backends.PublishRequest{Path: made})
		require.NoError(t, r.node.Unpublish(t.Context(), u.staged, made))
		u.requirePublished(made, false)
	})
}

// testOccupied asks for places where something else is.
func testOccupied(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		one, two := r.use(r.create(a), a), r.use(r.create(a), a)
		one.up()
		sum := one.write(one.path, "one")
		two.attach()
		if !a.block {
			q := two.stageRequest()
			q.Path = one.staged.Path
			_, err := r.node.Stage(t.Context(), q)
			require.ErrorIs(t, err, backends.ErrPrecondition)
		}
		two.stage()
		err := r.node.Publish(t.Context(), two.staged, backends.PublishRequest{Path: one.path})
		require.ErrorIs(t, err, backends.ErrExists)
		one.requirePublished(one.path, true)
		one.requireData(one.path, sum)
		two.requirePublished(one.path, false)

		_, err = r.node.Stats(t.Context(), two.staged, one.path)
		require.ErrorIs(t, err, backends.ErrNotFound, "another volume is there")

		two.unstage()
		if !two.isDevice() { // which stands until it is detached
			err = r.node.Publish(t.Context(), two.staged, backends.PublishRequest{Path: r.target()})
			require.ErrorIs(t, err, backends.ErrPrecondition, "it is not staged")
		}
	})
	t.Run("by what nobody published", func(t *testing.T) {
		t.Parallel()
		forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
			u := r.use(r.create(a), a)
			u.attach()
			u.stage()
			require.NoError(t, r.node.Unpublish(t.Context(), u.staged, r.target()), "nothing is there")
			missing := filepath.Join(r.work, "missing", "mount")
			require.NoError(t, r.node.Unpublish(t.Context(), u.staged, missing), "not even a parent is there")

			// Somebody's data is not ours to remove; whether to say so is.
			theirs := filepath.Join(r.newDir("theirs"), "file")
			require.NoError(t, os.WriteFile(theirs, []byte("data"), 0o600))
			_ = r.node.Unpublish(t.Context(), u.staged, theirs)
			_ = r.node.Unpublish(t.Context(), u.staged, filepath.Dir(theirs))
			link := filepath.Join(r.newDir("links"), "link")
			require.NoError(t, os.Symlink(filepath.Dir(theirs), link))
			_ = r.node.Unpublish(t.Context(), u.staged, link)
			require.FileExists(t, theirs)
			u.requireStaged(true)
		})
	})
}

func testReadOnlyPublication(t *testing.T, h Harness) {
	forEachAccess(t, h, nil, func(t *testing.T, r *rig, a access) {
		u := r.use(r.create(a), a)
		u.up()
		writable := u.path
		sum := u.write(writable, "before")
		readOnly := u.publish(backends.PublishRequest{ReadOnly: true})
		require.NoError(t, r.node.Publish(t.Context(), u.staged, backends.PublishRequest{Path: readOnly, ReadOnly: true}), "a repeated call")
		for path, q := range map[string]backends.PublishRequest{
			"a read-only one for writing": {Path: readOnly}, "a writable one for reading": {Path: writable, ReadOnly: true},
		} {
			require.ErrorIs(t, r.node.Publish(t.Context(), u.staged, q), backends.ErrExists, path)
		}
		u.requireData(readOnly, sum)

		h.needs(t, a, ReadOnly)
		u.requireNoWrite(readOnly)
		sum = u.write(writable, "the other target is writable still")
		u.requireData(writable, sum)
		u.unpublish(readOnly)
		u.requireData(writable, u.write(writable, "and stays so"))
		u.unpublish(writable)
	})
}
