//go:build linux

package mount_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

// Each benchmark runs the package and, as "bare", the fewest system calls that
// do the same without any of its promises.

func BenchmarkTmpfs(b *testing.B) {
	need(b, kernel.Tmpfs)
	target := dirIn(b, workDir(b), "target")
	o := options(b, "nosuid,nodev", "size=1m,mode=750")
	b.Run("package", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, mount.Mount(b.Context(), "test", target, "tmpfs", o))
			require.NoError(b, mount.Unmount(target))
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, unix.Mount("test", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=750"))
			require.NoError(b, unix.Unmount(target, 0))
		}
	})
}

func BenchmarkBind(b *testing.B) {
	need(b, kernel.Tmpfs)
	dir := workDir(b)
	// On a mount of its own, as a staged volume is: the kernel looks at every
	// child of the source's mount.
	source, target := tmpfsOn(b, dirIn(b, dir, "source")), dirIn(b, dir, "target")
	for name, o := range map[string]mount.Options{"as it is": {}, "read-only": options(b, "ro")} {
		b.Run(name+"/package", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, mount.Bind(b.Context(), source, target, o))
				require.NoError(b, mount.Unmount(target))
			}
		})
		b.Run(name+"/bare", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, unix.Mount(source, target, "", unix.MS_BIND, ""))
				if o.ReadOnly() {
					require.NoError(b, unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
				}
				require.NoError(b, unix.Unmount(target, 0))
			}
		})
	}
}

// The halves of a mount's life alone, without the grace period that an unmount
// waits for.
func BenchmarkMountOnly(b *testing.B) {
	need(b, kernel.Tmpfs)
	target := dirIn(b, workDir(b), "target")
	for name, do := range map[string]func() error{
		"package": func() error { return mount.Mount(b.Context(), "test", target, "tmpfs", mount.Options{}) },
		"bare":    func() error { return unix.Mount("test", target, "tmpfs", 0, "") },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, do())
				b.StopTimer()
				require.NoError(b, mount.Unmount(target))
				b.StartTimer()
			}
		})
	}
}

func BenchmarkStat(b *testing.B) {
	need(b, kernel.Tmpfs)
	target := tmpfsOn(b, dirIn(b, workDir(b), "target"))
	b.Run("package", func(b *testing.B) {
		for b.Loop() {
			_, err := mount.Stat(target)
			require.NoError(b, err)
		}
	})
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			var stat unix.Statx_t
			require.NoError(b, unix.Statx(unix.AT_FDCWD, target, 0, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID_UNIQUE, &stat))
		}
	})
}
