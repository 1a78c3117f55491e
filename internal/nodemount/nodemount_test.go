//go:build linux

package nodemount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/nodemount"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestBindOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		staged   string
		flags    []string
		readOnly bool
		want     string
		err      error
	}{
		"nothing":                           {},
		"attributes":                        {flags: []string{"noexec,nosuid"}, want: "noexec,nosuid"},
		"read-only":                         {flags: []string{"rw", "noexec"}, readOnly: true, want: "noexec,ro"},
		"parameters that the stage has too": {staged: `nouuid,context="a:b:c,d"`, flags: []string{`context="a:b:c,d"`, "noatime"}, want: "noatime"},
		"another value":                     {staged: `context="a:b:c,d"`, flags: []string{`context="a:b:c"`}, err: backends.ErrInvalid},
		"a parameter of its own":            {staged: "nouuid", flags: []string{"discard"}, err: backends.ErrInvalid},
		"half of a value with a comma":      {staged: `context="a,discard"`, flags: []string{"discard"}, err: backends.ErrInvalid},
		"no options at all":                 {flags: []string{`x="`}, err: backends.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := nodemount.BindOptions(test.staged, test.flags, test.readOnly)
			require.ErrorIs(t, err, test.err)
			if err != nil {
				require.NotContains(t, err.Error(), "a:b:c:", "a value may be sensitive")
				return
			}
			require.Equal(t, test.want, o.String())
		})
	}
}

func TestParseGroup(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		gid int
		ok  bool
		err error
	}{
		"":           {},
		"0":          {ok: true},
		"4294967294": {gid: 4294967294, ok: true},
		"4294967295": {err: backends.ErrInvalid}, // chown(2) takes it for "leave it"
		"-1":         {err: backends.ErrInvalid},
		"+1":         {err: backends.ErrInvalid},
		"wheel":      {err: backends.ErrInvalid},
	}
	for group, test := range tests {
		t.Run("group "+group, func(t *testing.T) {
			t.Parallel()
			gid, ok, err := nodemount.ParseGroup(group)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.gid, gid)
			require.Equal(t, test.ok, ok)
		})
	}
}

func TestShareWithGroup(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(dir, 0o700))
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 4321
	}
	require.NoError(t, nodemount.ShareWithGroup(dir, gid))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|os.ModeSetgid|0o770, info.Mode())
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &st))
	require.EqualValues(t, gid, st.Gid)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	require.Error(t, nodemount.ShareWithGroup(link, gid), "a link is not followed")
}

func TestLoopNumber(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]uint64{
		"/dev/loop0": 7 << 8, "/somewhere/loop12": 7<<8 | 12, "loop256": 7<<8 | 1<<20,
		"/dev/sda": 0, "/dev/loop": 0, "/dev/loop-control": 0, "loop1048576": 0, "": 0,
	} {
		require.Equal(t, want, nodemount.LoopNumber(node), node)
	}
}

func TestDeviceOfNoMount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "missing"), filepath.Join(dir, "missing", "deeper")} {
		_, mounted, err := nodemount.Device(path)
		require.NoError(t, err)
		require.False(t, mounted)
	}
}

func TestUnbindOfABusyMount(t *testing.T) {
	t.Parallel()
	source, target := testenv.TmpfsDir(t), filepath.Join(t.TempDir(), "target")
	require.NoError(t, nodemount.BindDir(t.Context(), source, target, mount.Options{}))
	user, err := os.Create(filepath.Join(target, "open"))
	require.NoError(t, err)
	defer user.Close()
	require.ErrorIs(t, nodemount.Unbind(t.Context(), target, func() bool { return false }), backends.ErrPrecondition)
	require.FileExists(t, filepath.Join(target, "open"))
	require.NoError(t, nodemount.Unbind(t.Context(), target, func() bool { return true }), "its volume is dead")
	require.NoDirExists(t, target)
	require.NoError(t, nodemount.Unbind(t.Context(), target, func() bool { return false }), "a repeated call")
	require.NoError(t, user.Close())
}

func TestABindThatFailsLeavesNoTarget(t *testing.T) {
	t.Parallel()
	testenv.TmpfsDir(t) // needs root
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	require.ErrorIs(t, nodemount.BindDir(t.Context(), filepath.Join(dir, "missing"), target, mount.Options{}), backends.ErrNotFound)
	require.NoDirExists(t, target)
	require.ErrorIs(t, nodemount.BindFile(t.Context(), dir, target, mount.Options{}), backends.ErrExists)
	require.NoFileExists(t, target)
}
