package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
)

// leaking are the ways to leave something behind that every system has.
var leaking = map[string]func(t *testing.T){
	"nothing": func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), "file"), nil, 0o600))
	},
	"file": func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(os.TempDir(), "left"), nil, 0o600))
	},
	"goroutine": func(*testing.T) {
		go func() { select {} }()
	},
	"need": func(t *testing.T) { Need(t, kernel.Feature(os.Getenv(needVariable))) },
}

// needVariable is the feature that the leak called "need" needs.
const needVariable = "CSIEMU_TESTENV_NEED"

func leak(t *testing.T, kind string) {
	t.Helper()
	do := leaking[kind]
	if do == nil {
		do = leakingOnLinux[kind]
	}
	require.NotNil(t, do, kind)
	do(t)
}

// leakySelf runs TestLeaks in a process of its own.
func leakySelf(t *testing.T, kind string, env ...string) (output string, err error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self, "-test.run=^TestLeaks$", "-test.v")
	c.Env = append(append(os.Environ(), leakVariable+"="+kind, RequireVariable+"="), env...)
	b, err := c.CombinedOutput()
	return string(b), err
}

func TestMainFindsWhatTestsLeave(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		found string
		needs []kernel.Feature
	}{
		"file":      {found: "/left ("},
		"goroutine": {found: "found unexpected goroutines"},
		"open file": {found: "open file"},
		"process":   {found: "process "},
		"mount":     {found: "mount ", needs: []kernel.Feature{kernel.Root, kernel.Tmpfs}},
		"loop":      {found: "loop device /dev/loop", needs: []kernel.Feature{kernel.Root, kernel.Loop, kernel.LoopConfigure}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if leaking[kind] == nil && leakingOnLinux[kind] == nil {
				t.Skip("only Linux tells what a process still holds")
			}
			Need(t, c.needs...)
			out, err := leakySelf(t, kind)
			require.Error(t, err, out)
			require.Contains(t, out, "the tests left something behind")
			require.Contains(t, out, c.found)
			require.Contains(t, out, "--- PASS: TestLeaks", "the test itself passed")
		})
	}
}

func TestMainFindsNothingAfterTestsThatCleanUp(t *testing.T) {
	t.Parallel()
	out, err := leakySelf(t, "nothing")
	require.NoError(t, err, out)
	require.NotContains(t, out, "left something behind")
}

func TestNeed(t *testing.T) {
	t.Parallel()
	lacking := lackingFeature(t)
	t.Run("skips with the reason", func(t *testing.T) {
		t.Parallel()
		out, err := leakySelf(t, "need", needVariable+"="+lacking)
		require.NoError(t, err, out)
		require.Contains(t, out, "--- SKIP: TestLeaks")
		require.Contains(t, out, "needs "+lacking+": "+lacking+" is not supported here")
	})
	for name, list := range map[string]string{
		"fails where the feature must be there": "root," + lacking,
		"fails where all features must":         "all",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := leakySelf(t, "need", needVariable+"="+lacking, RequireVariable+"="+list)
			require.Error(t, err, out)
			require.Contains(t, out, "--- FAIL: TestLeaks")
			require.Contains(t, out, "$CSIEMU_REQUIRE says that "+lacking+" must be here")
		})
	}
	t.Run("refuses a list with an unknown name", func(t *testing.T) {
		t.Parallel()
		out, err := leakySelf(t, "nothing", RequireVariable+"=root,lop")
		require.Error(t, err, out)
		require.Contains(t, out, `names "lop", which is no feature`)
	})
}

// lackingFeature finds a feature that this machine does not have.
func lackingFeature(t *testing.T) string {
	t.Helper()
	for _, f := range kernel.Features() {
		if errors.Is(kernel.Probe(t.Context(), f), kernel.ErrNotSupported) {
			return string(f)
		}
	}
	t.Skip("this machine has every feature")
	return ""
}
