//go:build linux

package treecopy_test

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/treecopy"
)

// acl is a POSIX ACL as the kernel takes it: its owner, one more user, its
// group, the mask and all others.
func acl(user uint32) []byte {
	p := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, permissions uint16
		id               uint32
	}{{0x01, 7, ^uint32(0)}, {0x02, 5, user}, {0x04, 4, ^uint32(0)}, {0x10, 5, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		p = binary.LittleEndian.AppendUint16(p, e.tag)
		p = binary.LittleEndian.AppendUint16(p, e.permissions)
		p = binary.LittleEndian.AppendUint32(p, e.id)
	}
	return p
}

// capability is the file capability CAP_NET_BIND_SERVICE, effective.
func capability() []byte {
	p := make([]byte, 20)
	binary.LittleEndian.PutUint32(p, 0x02000001)
	binary.LittleEndian.PutUint32(p[4:], 1<<10)
	return p
}

func setXattr(t *testing.T, path, name string, value []byte) {
	t.Helper()
	require.NoError(t, unix.Lsetxattr(path, name, value, 0))
}

// furnish puts into dir everything that a file system can keep.
func furnish(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "plain"), "text")
	write(t, filepath.Join(dir, "empty"), "")
	in := func(elements ...string) string { return filepath.Join(append([]string{dir}, elements...)...) }

	// Modes and owners.
	makeDir(t, in("sticky and setgid"))
	require.NoError(t, os.Chown(in("sticky and setgid"), 1000, 2000))
	require.NoError(t, unix.Chmod(in("sticky and setgid"), 0o3775))
	write(t, in("sticky and setgid", "inherits group"), "x")
	write(t, in("setuid"), "x")
	require.NoError(t, os.Chown(in("setuid"), 1234, 4321))
	require.NoError(t, unix.Chmod(in("setuid"), 0o6755))
	write(t, in("nobody may"), "secret")
	require.NoError(t, unix.Chmod(in("nobody may"), 0))
	makeDir(t, in("closed directory"))
	write(t, in("closed directory", "inside"), "x")
	require.NoError(t, unix.Chmod(in("closed directory"), 0))

	// Extended attributes.
	setXattr(t, in("plain"), "trusted.csiemu", []byte("value\x00with a NUL"))
	setXattr(t, in("plain"), "security.capability", capability())
	setXattr(t, in("plain"), "system.posix_acl_access", acl(77))
	setXattr(t, in("closed directory"), "system.posix_acl_default", acl(78))
	setXattr(t, in("closed directory"), "trusted.large", []byte(strings.Repeat("v", 3000)))
	setXattr(t, in("empty"), "trusted.empty", nil)
	if kernel.Probe(t.Context(), kernel.UserXattr) == nil {
		setXattr(t, in("setuid"), "user.name", []byte("value"))
	}

	// Symbolic links, of which none may be followed.
	for name, target := range map[string]string{
		"link": "plain", "loop": "loop", "to root": "/", "to parent": "..", "dangling": "nowhere", "long": strings.Repeat("x/", 2000) + "x",
	} {
		require.NoError(t, os.Symlink(target, in(name)))
	}
	setXattr(t, in("link"), "trusted.link", []byte("of the link"))
	require.NoError(t, os.Lchown(in("link"), 55, 66))

	// Special files.
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK} {
		require.NoError(t, unix.Mknod(in(name), mode|0o640, 0))
	}
	require.NoError(t, unix.Mknod(in("character device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	require.NoError(t, unix.Mknod(in("block device"), unix.S_IFBLK|0o660, int(unix.Mkdev(259, 1048575))))
	setXattr(t, in("fifo"), "trusted.fifo", []byte("not opened"))

	// Hard links: in one directory, across some, of special files.
	makeDir(t, in("a", "b", "c"))
	for from, to := range map[string]string{"plain": "plain again", "setuid": "a/b/setuid", "fifo": "a/fifo", "link": "a/b/c/link"} {
		require.NoError(t, os.Link(in(from), in(to)))
	}
	require.NoError(t, os.Link(in("plain"), in("a", "b", "c", "third name")))

	// A file with holes.
	f, err := os.Create(in("sparse"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("data"), 8<<20)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(64<<20+5))
	require.NoError(t, f.Close())

	// Names.
	for _, name := range []string{"new\nline", "-rf", "\xff\xfe not UTF-8", " ", "*", strings.Repeat("n", 255), "...", "tab\tand \"quotes\""} {
		write(t, in(name), name)
	}
	require.NoError(t, os.Chown(dir, 11, 22))
	require.NoError(t, unix.Chmod(dir, 0o2751))
	setXattr(t, dir, "trusted.root", []byte("of the tree"))
	setTimes(t, dir)
}

func TestCopyTreeKeepsEverything(t *testing.T) {
	t.Parallel()
	need(t)
	destinations := map[string]func(testing.TB) string{
		"to tmpfs":                   func(tb testing.TB) string { return tmpfs(tb) },
		"to the temporary directory": func(tb testing.TB) string { return tb.TempDir() },
	}
	for name, destination := range destinations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, dst := tmpfs(t), destination(t)
			furnish(t, src)
			before := tree(t, src)
			require.NoError(t, treecopy.CopyTree(t.Context(), dst, src))

			require.Empty(t, cmp.Diff(before, tree(t, src)), "the source was changed")
			require.Empty(t, cmp.Diff(before, tree(t, dst)))
			require.Empty(t, cmp.Diff(contents(t, src), contents(t, dst)))
			var st unix.Stat_t
			require.NoError(t, unix.Stat(filepath.Join(dst, "sparse"), &st))
			require.Less(t, st.Blocks*512, int64(1<<20), "holes were filled")
		})
	}
}

func TestCopyTreeOfASubdirectory(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	inner := makeDir(t, src, "inner", "most")
	write(t, filepath.Join(src, "outside"), "one file")
	require.NoError(t, os.Link(filepath.Join(src, "outside"), filepath.Join(inner, "first")))
	require.NoError(t, os.Link(filepath.Join(src, "outside"), filepath.Join(inner, "second")))

	require.NoError(t, treecopy.CopyTree(t.Context(), dst, filepath.Dir(inner)))
	require.Equal(t, []string{"most"}, list(t, dst))
	require.Empty(t, cmp.Diff(tree(t, inner), tree(t, filepath.Join(dst, "most"))))
}

func TestCopyTreeSeesWhatIsBelowMounts(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	covered := makeDir(t, src, "covered")
	write(t, filepath.Join(covered, "of the volume"), "yes")
	file := filepath.Join(src, "covered file")
	write(t, file, "of the volume")

	mountTmpfs(t, covered)
	write(t, filepath.Join(covered, "of another file system"), "no")
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, "of another file system")
	require.NoError(t, mount.Bind(t.Context(), other, file, mount.Options{}))
	defer func() { require.NoError(t, mount.Unmount(file)) }()
	whole := makeDir(t, src, "whole")
	require.NoError(t, mount.Bind(t.Context(), src, whole, mount.Options{}))
	defer func() { require.NoError(t, mount.Unmount(whole)) }()

	require.NoError(t, treecopy.CopyTree(t.Context(), dst, src))
	require.Equal(t, []string{"of the volume"}, list(t, filepath.Join(dst, "covered")))
	require.Empty(t, list(t, filepath.Join(dst, "whole")))
	text, err := os.ReadFile(filepath.Join(dst, "covered file"))
	require.NoError(t, err)
	require.Equal(t, "of the volume", string(text))
}

func TestCopyTreeIsNotTouchedByTheDestinationsDefaultACL(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	makeDir(t, src, "dir")
	write(t, filepath.Join(src, "dir", "file"), "x")
	setXattr(t, dst, "system.posix_acl_default", acl(99))
	require.NoError(t, treecopy.CopyTree(t.Context(), dst, src))
	require.Empty(t, cmp.Diff(tree(t, src), tree(t, dst)))
}

func TestCopyTreeStopsWhereverItsContextEnds(t *testing.T) {
	t.Parallel()
	need(t)
	src, dst := tmpfs(t), tmpfs(t)
	makeDir(t, src, "a", "b")
	for _, name := range []string{"1", "a/2", "a/b/3"} {
		write(t, filepath.Join(src, name), name)
	}
	for looks := 0; ; looks++ {
		left := looks
		ctx := watched{t.Context(), func() error {
			if left--; left < 0 {
				return context.Canceled
			}
			return nil
		}}
		err := treecopy.CopyTree(ctx, makeDir(t, dst, strings.Repeat("x", looks+1)), src)
		if err == nil {
			require.GreaterOrEqual(t, looks, 5, "it must look at each entry")
			break
		}
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestCopyTreeToAFullDestinationIsExhausted(t *testing.T) {
	t.Parallel()
	need(t)
	cases := map[string]struct {
		option string
		fill   func(dir string)
	}{
		"no space for data": {"size=64k", func(dir string) { write(t, filepath.Join(dir, "file"), strings.Repeat("x", 1<<20)) }},
		"no inodes": {"nr_inodes=3", func(dir string) {
			for _, name := range []string{"1", "2", "3", "4"} {
				makeDir(t, dir, name)
			}
		}},
	}
	for name, c := range cases {
		src := tmpfs(t)
		c.fill(src)
		err := treecopy.CopyTree(t.Context(), tmpfs(t, c.option), src)
		require.ErrorIs(t, err, backends.ErrExhausted, name)
		require.ErrorContains(t, err, src, name)
	}
}

func TestCopyTreeOfFilesWithManyNamesFitsWhereTheSourceDid(t *testing.T) {
	t.Parallel()
	need(t)
	// tmpfs charges an inode for each name; the copy may need one more for the
	// directory of extra names and one for the name in it, not one for each:
	// both names of a file follow each other, whichever way tmpfs lists them.
	src, dst := tmpfs(t), tmpfs(t, "nr_inodes=204")
	for i := range 100 {
		name := filepath.Join(src, "file"+strings.Repeat("i", i))
		write(t, name, "x")
		require.NoError(t, os.Link(name, name+" again"))
	}
	require.NoError(t, treecopy.CopyTree(t.Context(), dst, src))
}

func TestCopyTreeIntoItselfEnds(t *testing.T) {
	t.Parallel()
	need(t)
	src := tmpfs(t)
	inside := makeDir(t, src, "a", "b")
	require.ErrorIs(t, treecopy.CopyTree(t.Context(), inside, src), treecopy.ErrInside)
	require.ErrorIs(t, treecopy.CopyTree(t.Context(), src, src), treecopy.ErrInside)
}

func TestCopyTreeRefuses(t *testing.T) {
	t.Parallel()
	need(t)
	dir := tmpfs(t)
	src, dst := makeDir(t, dir, "src"), makeDir(t, dir, "dst")
	write(t, filepath.Join(src, "file"), "x")
	write(t, filepath.Join(dst, "file"), "there already")
	require.NoError(t, os.Symlink("src", filepath.Join(dir, "link")))
	empty := makeDir(t, dir, "empty")
	cases := map[string]struct {
		dst, src string
		want     error
	}{
		"a source that is not there":            {empty, filepath.Join(dir, "gone"), os.ErrNotExist},
		"a destination that is not there":       {filepath.Join(dir, "gone"), src, os.ErrNotExist},
		"a source that is a file":               {empty, filepath.Join(src, "file"), unix.ENOTDIR},
		"a source that is a symbolic link":      {empty, filepath.Join(dir, "link"), unix.ENOTDIR},
		"a destination that is a symbolic link": {filepath.Join(dir, "link"), src, unix.ENOTDIR},
		"a destination with a name of the tree": {dst, src, os.ErrExist},
	}
	for name, c := range cases {
		require.ErrorIs(t, treecopy.CopyTree(t.Context(), c.dst, c.src), c.want, name)
	}
	text, err := os.ReadFile(filepath.Join(dst, "file"))
	require.NoError(t, err)
	require.Equal(t, "there already", string(text))
}
