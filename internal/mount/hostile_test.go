//go:build linux

package mount_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

// calls are all that take a path, and what else they need.
func calls(ctx context.Context, dir string) map[string]func(path string) error {
	return map[string]func(string) error{
		"Mount":          func(p string) error { return mount.Mount(ctx, "test", p, "tmpfs", mount.Options{}) },
		"Bind to":        func(p string) error { return mount.Bind(ctx, dir, p, mount.Options{}) },
		"Bind from":      func(p string) error { return mount.Bind(ctx, p, dir, mount.Options{}) },
		"Unmount":        mount.Unmount,
		"Detach":         mount.Detach,
		"RemoveTarget":   mount.RemoveTarget,
		"MakeDirTarget":  func(p string) error { _, err := mount.MakeDirTarget(p); return err },
		"MakeFileTarget": func(p string) error { _, err := mount.MakeFileTarget(p); return err },
		"Stat":           func(p string) error { _, err := mount.Stat(p); return err },
		"StatFS":         func(p string) error { _, err := mount.StatFS(p); return err },
		"Propagates":     func(p string) error { _, err := mount.Propagates(p); return err },
	}
}

func TestHostilePaths(t *testing.T) {
	t.Parallel()
	need(t)
	dir := workDir(t)
	fileIn(t, dirIn(t, dir, "real/target"), "file", "")
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "real", "up")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	require.NoError(t, os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	for name, path := range map[string]string{
		"nothing":                            "",
		"the root directory":                 "/",
		"relative":                           "real/target",
		"relative, up":                       "../../etc",
		"up in the middle":                   dir + "/real/../real/target",
		"up past the root":                   "/../../.." + dir + "/real/target",
		"up at the end":                      dir + "/real/target/..",
		"a slash at the end":                 dir + "/real/target/",
		"a NUL":                              dir + "/real/target\x00/etc",
		"a newline":                          dir + "/real\n/target",
		"a link in the middle":               dir + "/link/target",
		"a link in the middle, absolute":     dir + "/real/up/real/target",
		"a link to itself in the middle":     dir + "/loop/target",
		"a link of the kernel in the middle": dir + "/magic" + dir + "/real/target",
		"a link of the kernel":               "/proc/self/root" + dir + "/real/target",
		"an element too long":                dir + "/" + strings.Repeat("e", 256),
		"too long":                           dir + strings.Repeat("/e", 2048),
	} {
		for call, do := range calls(t.Context(), dirIn(t, dir, "other")) {
			require.ErrorIsf(t, do(path), backends.ErrInvalid, "%s with %s", call, name)
		}
	}
	requireNothingMounted(t, dir)
	require.FileExists(t, filepath.Join(dir, "real", "target", "file"))
}

func TestALinkAsTheLastElement(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	victim := tmpfsOn(t, dirIn(t, dir, "victim"))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("victim", link))
	for call, do := range calls(t.Context(), dirIn(t, dir, "other")) {
		err := do(link)
		switch call {
		case "Stat", "Propagates", "Unmount", "Detach": // speak of the link itself, where nothing is mounted
			require.NoError(t, err, call)
		default:
			require.ErrorIs(t, err, backends.ErrInvalid, call)
		}
	}
	entries, err := mount.ListUnder(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, victim, entries[0].MountPoint, "nothing was mounted or unmounted through the link")
	_, err = os.Readlink(link)
	require.NoError(t, err, "the link is left as well")
}

// The entries of "/" are the system's own: /var or /tmp may be a link.
func TestALinkInTheRootDirectory(t *testing.T) {
	t.Parallel()
	need(t)
	link, file := linkInRoot(t)
	info, err := mount.Stat(file)
	require.NoError(t, err)
	real, err := filepath.EvalSymlinks(file)
	require.NoError(t, err)
	want, err := mount.Stat(real)
	require.NoError(t, err)
	require.Equal(t, want, info)
	require.NoError(t, mount.Unmount(file))
	_, err = mount.MakeDirTarget(file)
	require.ErrorIs(t, err, backends.ErrExists)

	_, err = mount.MakeDirTarget(link)
	require.ErrorIs(t, err, backends.ErrInvalid, "but not as the last element")
	require.ErrorIs(t, mount.Mount(t.Context(), "test", link, "tmpfs", mount.Options{}), backends.ErrInvalid)
}

// linkInRoot finds a link in "/", such as /bin, and a file in the directory that
// it names.
func linkInRoot(t *testing.T) (link, file string) {
	t.Helper()
	entries, err := os.ReadDir("/")
	require.NoError(t, err)
	for _, e := range entries {
		link := "/" + e.Name()
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		below, err := os.ReadDir(link)
		if err != nil {
			continue
		}
		for _, b := range below {
			if b.Type().IsRegular() {
				return link, filepath.Join(link, b.Name())
			}
		}
	}
	t.Skip("no entry of / is a link to a directory with a file")
	return "", ""
}
