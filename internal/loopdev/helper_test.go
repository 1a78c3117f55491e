//go:build linux

package loopdev_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/loopdev"
)

// helperVariable makes this executable another process of a test.
const helperVariable = "CSIEMU_LOOPDEV_TEST_HELPER"

// help does a task with the file at path until its standard input ends, as it
// does when the test ends, or until it is killed. It prints what it has when it
// is ready.
func help(task, path, name string) error {
	switch task {
	case "hold":
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		pool, err := loopdev.NewPool(loopdev.Options{})
		if err != nil {
			return err
		}
		d, err := pool.Attach(context.Background(), file, loopdev.Config{Name: name, Autoclear: true})
		if err != nil {
			return err
		}
		fmt.Println(d.Index)
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "serve":
		connection, err := mountFUSE(path)
		if err != nil {
			return err
		}
		fmt.Println(0)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		return answerFUSE(connection)
	}
	return fmt.Errorf("unknown task %q", task)
}

// startHelper runs help in a process of its own and returns how to kill it and
// the number that it printed.
func startHelper(t *testing.T, task, path, name string) (kill func(), number int) {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), helperVariable+"="+task, helperVariable+"_PATH="+path, helperVariable+"_NAME="+name)
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // closed by Wait, or by the end of this process
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	_, err = fmt.Fscan(stdout, &number)
	require.NoError(t, err)
	return kill, number
}
