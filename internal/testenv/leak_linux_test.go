package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// leakingOnLinux are the ways that only Linux can tell of.
var leakingOnLinux = map[string]func(t *testing.T){
	"open file": func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "file")
		_, err := unix.Open(name, unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		require.NoError(t, err)
	},
	"process": func(t *testing.T) {
		// It ends with the pipe, that is with this process.
		c := exec.Command("cat")
		_, err := c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
	},
	"mount": func(t *testing.T) {
		dir := filepath.Join(os.TempDir(), `a mount\point`)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, unix.Mount("csiemu-test", dir, "tmpfs", 0, ""))
	},
	"loop": func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "image")
		require.NoError(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		require.NoError(t, err)
		device, err := attach(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		// What frees the device by itself is what a test must not do without.
		t.Cleanup(func() { require.NoError(t, setAutoclear(device, false)); require.NoError(t, device.Close()) })
	},
}

// setAutoclear says whether a loop device frees itself when it is closed.
func setAutoclear(device *os.File, on bool) error {
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return err
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if on {
		info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	}
	return unix.IoctlLoopSetStatus64(int(device.Fd()), info)
}

func TestMainTakesAwayWhatTestsLeave(t *testing.T) {
	t.Parallel()
	Need(t, kernel.Root, kernel.Loop, kernel.LoopConfigure, kernel.Tmpfs)
	for _, kind := range []string{"file", "mount", "loop"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := realDir(t)
			_, err := leakySelf(t, kind, "TMPDIR="+dir)
			require.Error(t, err)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
			require.Empty(t, loopsBelow(dir))
			mounts, err := mountsBelow(dir)
			require.NoError(t, err)
			require.Empty(t, mounts)
		})
	}
}

func TestXFSDirSharesBlocks(t *testing.T) {
	t.Parallel()
	require.NoError(t, kernel.Reflink(XFSDir(t)))
}

func TestTmpfsDirIsATmpfsOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := TmpfsDir(t)
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &s))
	require.EqualValues(t, unix.TMPFS_MAGIC, s.Type)
	require.True(t, isMount(dir))
	require.False(t, isMount(filepath.Dir(dir)))
}

func TestSmallTmpfsDirCanBeFilled(t *testing.T) {
	t.Parallel()
	dir := SmallTmpfsDir(t, 1<<20)
	err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 2<<20), 0o600)
	require.ErrorIs(t, err, unix.ENOSPC)
}
