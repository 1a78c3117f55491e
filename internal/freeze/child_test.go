//go:build linux

package freeze_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/freeze"
)

// childDir is the environment variable that makes the test's executable a
// process that freezes this directory and waits to be killed.
const childDir = "CSIEMU_TEST_FREEZE_DIR"

func runChild(dir string) int {
	f := freeze.New(freeze.Options{})
	if _, err := f.Freeze(context.Background(), dir); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("frozen", f.WatchdogPID())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test dies, at the latest
	return 0
}

// child is a process that holds a file system frozen.
type child struct {
	process  *os.Process
	watchdog int
	wait     func() error
}

// startChild returns when dir is frozen by another process, which has the extra
// files open.
func startChild(t *testing.T, dir string, extra ...*os.File) child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.ExtraFiles = extra
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.NoError(t, freeze.Thaw(dir)) // should the test have failed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	number, found := strings.CutPrefix(strings.TrimSpace(line), "frozen ")
	require.True(t, found, line)
	watchdog, err := strconv.Atoi(number)
	require.NoError(t, err)
	return child{process: cmd.Process, watchdog: watchdog, wait: cmd.Wait}
}

func TestWritersGoOnWhenTheirFreezerIsKilled(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	c := startChild(t, dir)
	writer := startWriter(dir)
	require.True(t, isFrozen(t, dir))

	require.NoError(t, c.process.Kill())
	require.NoError(t, await(t, "end of the write", soon, writer))
	require.Error(t, c.wait())
}

func TestSignalsDoNotEndTheWatchdog(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	c := startChild(t, dir)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		require.NoError(t, syscall.Kill(c.watchdog, signal))
	}
	require.True(t, isFrozen(t, dir))
	writer := startWriter(dir)
	require.NoError(t, c.process.Kill())
	require.NoError(t, await(t, "end of the write", soon, writer))
}

func TestThawRepairsWhatTwoKilledProcessesLeft(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	c := startChild(t, dir)
	// The parent would thaw at once when its watchdog dies: it must not run.
	require.NoError(t, c.process.Signal(syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(c.watchdog, syscall.SIGKILL))
	require.NoError(t, c.process.Kill())
	require.Error(t, c.wait())

	writer := startWriter(dir)
	require.True(t, isFrozen(t, dir), "somebody thawed; the test shows nothing")
	require.NoError(t, freeze.Thaw(dir))
	require.NoError(t, await(t, "end of the write", patience, writer))
	require.NoError(t, freeze.Thaw(dir), "the second time")
}

func TestWatchdogHoldsNothingOfItsParent(t *testing.T) {
	t.Parallel()
	dir := ext4(t)
	// Without close-on-exec in the child, as from a careless parent of it.
	var extra []*os.File
	for range 3 {
		f, err := os.Open(t.TempDir())
		require.NoError(t, err)
		defer f.Close()
		extra = append(extra, f)
	}
	c := startChild(t, dir, extra...)
	proc := fmt.Sprintf("/proc/%d/", c.watchdog)
	cwd, err := os.Readlink(proc + "cwd")
	require.NoError(t, err)
	require.Equal(t, "/", cwd)

	entries, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	for _, e := range entries {
		target, err := os.Readlink(proc + "fd/" + e.Name())
		require.NoError(t, err)
		if target == dir || target == "/dev/null" || strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "anon_inode:") {
			continue
		}
		require.Fail(t, "the watchdog holds "+target)
	}

	stat, err := os.ReadFile(proc + "stat")
	require.NoError(t, err)
	// pid (name) state parent group session
	_, rest, found := strings.Cut(string(stat), ") ")
	require.True(t, found)
	require.Equal(t, strconv.Itoa(c.watchdog), strings.Fields(rest)[3], "it shares a session")
	name, err := os.ReadFile(proc + "cmdline")
	require.NoError(t, err)
	require.Equal(t, freeze.WatchdogName, strings.TrimRight(string(name), "\x00"))
}

func TestVariableWithoutSocketDoesNothing(t *testing.T) {
	t.Parallel()
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	for name, extra := range map[string][]*os.File{"no descriptor 3": nil, "another descriptor 3": {null}} {
		cmd := exec.Command("/proc/self/exe", "-test.list=^TestVariable")
		cmd.Env = append(os.Environ(), freeze.WatchdogEnv+"=1")
		cmd.ExtraFiles = extra
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, name)
		require.Contains(t, string(output), t.Name(), name)
	}
}
