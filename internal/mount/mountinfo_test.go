//go:build linux

package mount_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
)

func TestParseMountInfo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line string
		want mount.Entry
	}{
		"the example of the manual page": {
			"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
			mount.Entry{
				ID: 36, Parent: 35, Dev: unix.Mkdev(98, 0), Root: "/mnt1", MountPoint: "/mnt2", Options: "rw,noatime",
				Propagation: []string{"master:1"}, FSType: "ext3", Source: "/dev/root", SuperOptions: "rw,errors=continue",
			},
		},
		"no optional field": {
			"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard",
			mount.Entry{
				ID: 27, Parent: 1, Dev: unix.Mkdev(254, 0), Root: "/", MountPoint: "/", Options: "rw,relatime",
				FSType: "ext4", Source: "/dev/vda", SuperOptions: "rw,discard",
			},
		},
		"several optional fields": {
			"1 2 0:3 / /a rw shared:7 master:3 propagate_from:2 - tmpfs none rw",
			mount.Entry{
				ID: 1, Parent: 2, Dev: unix.Mkdev(0, 3), Root: "/", MountPoint: "/a", Options: "rw",
				Propagation: []string{"shared:7", "master:3", "propagate_from:2"}, FSType: "tmpfs", Source: "none", SuperOptions: "rw",
			},
		},
		"every escape": {
			`1 2 7:1048575 /a\040b /c\011d\012e\134f\043g rw - fuse.x\040y \134\134 rw,context=\134"u:r:t:s0:c1\054c2`,
			mount.Entry{
				ID: 1, Parent: 2, Dev: unix.Mkdev(7, 1048575), Root: "/a b", MountPoint: "/c\td\ne\\f#g", Options: "rw",
				FSType: "fuse.x y", Source: `\\`, SuperOptions: `rw,context=\"u:r:t:s0:c1,c2`,
			},
		},
		"a backslash that escapes nothing": {
			`1 2 0:3 / /a\9\04 rw - tmpfs \777 rw`,
			mount.Entry{
				ID: 1, Parent: 2, Dev: unix.Mkdev(0, 3), Root: "/", MountPoint: `/a\9\04`, Options: "rw",
				FSType: "tmpfs", Source: `\777`, SuperOptions: "rw",
			},
		},
		"an empty source": {
			"1 2 0:3 / /a rw - tmpfs  rw",
			mount.Entry{
				ID: 1, Parent: 2, Dev: unix.Mkdev(0, 3), Root: "/", MountPoint: "/a", Options: "rw",
				FSType: "tmpfs", SuperOptions: "rw",
			},
		},
		"a source called dash": {
			"1 2 0:3 / /a rw - tmpfs - rw",
			mount.Entry{
				ID: 1, Parent: 2, Dev: unix.Mkdev(0, 3), Root: "/", MountPoint: "/a", Options: "rw",
				FSType: "tmpfs", Source: "-", SuperOptions: "rw",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entries, err := mount.ParseMountInfo(strings.NewReader(c.line + "\n"))
			require.NoError(t, err)
			require.Equal(t, []mount.Entry{c.want}, entries)
		})
	}
}

func TestParseMountInfoRefuses(t *testing.T) {
	t.Parallel()
	const good = "36 35 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw\n"
	for name, bad := range map[string]string{
		"an empty line":             "",
		"a line cut short":          "36 35 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root",
		"no dash":                   "36 35 98:0 /mnt1 /mnt2 rw,noatime ext3 /dev/root rw",
		"a field too many":          "36 35 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw more",
		"an id that is no number":   "x 35 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw",
		"a parent below zero":       "36 -1 98:0 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw",
		"a device without a colon":  "36 35 98 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw",
		"a device that is too much": "36 35 98:4294967296 /mnt1 /mnt2 rw,noatime - ext3 /dev/root rw",
		"a line without end":        strings.Repeat("x", 1<<19),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mount.ParseMountInfo(strings.NewReader(good + bad + "\n" + good))
			require.Error(t, err)
			require.Regexp(t, "mountinfo (line 2|after line 1)", err.Error())
		})
	}
}

func TestListUnder(t *testing.T) {
	t.Parallel()
	need(t, kernel.Tmpfs)
	dir := workDir(t)
	outer := tmpfsOn(t, dirIn(t, dir, "a"))
	name := "space tab\tnew\nline back\\slash hash# \"quote\""
	inner := filepath.Join(outer, name)
	require.NoError(t, os.Mkdir(inner, 0o755))
	require.NoError(t, unix.Mount("none", inner, "tmpfs", 0, "")) // such names are refused by Mount
	defer func() { require.NoError(t, unix.Unmount(inner, 0)) }()
	tmpfsOn(t, dirIn(t, dir, "ab")) // begins like a, but is not under it

	for name, path := range map[string]string{"itself": outer, "by a link": filepath.Join(dir, "link")} {
		if name == "by a link" {
			require.NoError(t, os.Symlink("a", path))
		}
		entries, err := mount.ListUnder(path)
		require.NoError(t, err, name)
		require.Len(t, entries, 2, name)
		require.Equal(t, outer, entries[0].MountPoint, name)
		require.Equal(t, inner, entries[1].MountPoint, name)
		require.Equal(t, entries[0].ID, entries[1].Parent, name)
	}
	all, err := mount.ListUnder("/")
	require.NoError(t, err)
	require.Greater(t, len(all), 3)
	none, err := mount.ListUnder(filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.Empty(t, none)
}

func FuzzParseMountInfo(f *testing.F) {
	own, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err == nil {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := mount.ParseMountInfo(bytes.NewReader(data))
		if err != nil {
			require.Nil(t, entries)
			return
		}
		// Written as the kernel would and read again, nothing is lost.
		var text strings.Builder
		for _, e := range entries {
			text.WriteString(mountInfoLine(e))
		}
		again, err := mount.ParseMountInfo(strings.NewReader(text.String()))
		require.NoError(t, err)
		require.Equal(t, entries, again)
	})
}

// mountInfoLine writes an entry as the kernel does.
func mountInfoLine(e mount.Entry) string {
	escape := func(s string) string {
		var out strings.Builder
		for i := range len(s) {
			if strings.IndexByte(" \t\n\r\\#", s[i]) >= 0 {
				fmt.Fprintf(&out, `\%03o`, s[i])
			} else {
				out.WriteByte(s[i])
			}
		}
		return out.String()
	}
	fields := []string{
		fmt.Sprint(e.ID), fmt.Sprint(e.Parent), fmt.Sprintf("%d:%d", unix.Major(e.Dev), unix.Minor(e.Dev)),
		escape(e.Root), escape(e.MountPoint), escape(e.Options),
	}
	for _, p := range e.Propagation {
		fields = append(fields, escape(p))
	}
	fields = append(fields, "-", escape(e.FSType), escape(e.Source), escape(e.SuperOptions))
	return strings.Join(fields, " ") + "\n"
}
