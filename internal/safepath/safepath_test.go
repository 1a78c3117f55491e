package safepath_test

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/safepath"
)

func TestCheckPathTakes(t *testing.T) {
	t.Parallel()
	accepted := map[string]string{
		"a kubelet target":                 "/var/lib/kubelet/pods/3f2c/volumes/kubernetes.io~csi/pvc-1/mount",
		"one element":                      "/data",
		"spaces and quotes":                `/srv/my "volumes"`,
		"characters of any language":       "/srv/данные/数据",
		"dots inside an element":           "/srv/..a/b../...",
		"a dash in front":                  "/srv/-rf",
		"an element of the longest length": "/srv/" + strings.Repeat("e", safepath.MaxElementBytes),
		"a path of the longest length":     longest(safepath.MaxBytes),
	}
	if filepath.Separator == '/' {
		accepted["a backslash, which is a letter like others"] = `/srv/a\..\b`
	}
	for name, p := range accepted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, safepath.CheckPath(p))
		})
	}
}

func TestCheckPathTakesTheSystemsOwnPaths(t *testing.T) {
	t.Parallel()
	require.NoError(t, safepath.CheckPath(filepath.Join(t.TempDir(), "target")))
}

func TestCheckPathRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, reason string }{
		"nothing":                        {"", "is empty"},
		"a relative path":                {"srv/a", "is not absolute"},
		"a path relative to here":        {"./srv", "is not absolute"},
		"a way up and out":               {"../../etc", "is not absolute"},
		"a way up in the middle":         {"/srv/../etc", `shortest form "/etc"`},
		"a way up above the root":        {"/../../etc", `shortest form "/etc"`},
		"a way up at the end":            {"/srv/a/..", `shortest form "/srv"`},
		"a dot element":                  {"/srv/./a", `shortest form "/srv/a"`},
		"a double slash":                 {"/srv//a", `shortest form "/srv/a"`},
		"a double slash in front":        {"//srv/a", `shortest form "/srv/a"`},
		"a slash at the end":             {"/srv/a/", `shortest form "/srv/a"`},
		"the root directory":             {"/", "is the root directory"},
		"a NUL":                          {"/srv/a\x00b", "control character"},
		"a newline":                      {"/srv/a\nb", "control character"},
		"a tab":                          {"/srv/a\tb", "control character"},
		"an escape":                      {"/srv/\x1b[2J", "control character"},
		"a delete":                       {"/srv/\x7f", "control character"},
		"a control character past ASCII": {"/srv/\u0085", "control character"},
		"bytes that are not UTF-8":       {"/srv/\xff\xfe", "not valid UTF-8"},
		"an element too long":            {"/srv/" + strings.Repeat("e", safepath.MaxElementBytes+1), "element of 256 bytes"},
		"a path too long":                {longest(safepath.MaxBytes + 1), "path of 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := safepath.CheckPath(c.path)
			require.ErrorIs(t, err, backends.ErrInvalid)
			require.ErrorContains(t, err, c.reason)
			require.Less(t, len(err.Error()), 4*len(c.path)+200, "the message is no longer than it must be")
		})
	}
}

// longest makes a clean path of exactly n bytes.
func longest(n int) string {
	p := strings.Repeat("/"+strings.Repeat("d", 99), n/100)
	return p + "/" + strings.Repeat("e", n-len(p)-1)
}

func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"", "/", "/a", "/a/../b", "a", "/a\x00", "/a\n", "//", "/a/", `C:\a`, `\\host\share`, "/\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if safepath.CheckPath(p) != nil {
			return
		}
		if path.IsAbs(p) {
			require.Equal(t, path.Clean(p), p)
		} else {
			require.True(t, filepath.IsAbs(p))
			require.Equal(t, filepath.Clean(p), p)
		}
		require.NotContains(t, strings.FieldsFunc(p, func(r rune) bool { return r == '/' || r == filepath.Separator }), "..")
		require.False(t, strings.ContainsFunc(p, unicode.IsControl))
		require.LessOrEqual(t, len(p), safepath.MaxBytes)
	})
}
