//go:build linux

package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/internal/kernel"
)

// toolGrace is how long a tool that was asked to stop may take to do so before
// it is killed.
const toolGrace = 10 * time.Second

// tool is a program of the file system's own package.
type tool struct {
	name    string
	feature kernel.Feature
}

// toolError is a tool that ran and failed.
type toolError struct {
	name   string
	output string
	err    error
}

func (e *toolError) Error() string {
	if e.output == "" {
		return fmt.Sprintf("run %s: %v", e.name, e.err)
	}
	return fmt.Sprintf("run %s: %v: %s", e.name, e.err, e.output)
}

func (e *toolError) Unwrap() error { return e.err }

// exitCode is the status of a tool that failed, -1 if it did not exit by itself.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// find returns the tool's path, or a *kernel.NotSupportedError that names the
// package that has it.
func (t tool) find() (string, error) {
	path, err := exec.LookPath(t.name)
	if err == nil {
		return path, nil
	}
	packages := map[kernel.Feature]string{
		kernel.Ext4: "e2fsprogs", kernel.XFS: "xfsprogs", kernel.Btrfs: "btrfs-progs",
	}
	return "", &kernel.NotSupportedError{
		Feature: t.feature,
		Reason:  t.name + " not found in PATH",
		Remedy:  "install " + packages[t.feature] + ", and have /usr/sbin in PATH",
	}
}

// run runs the tool on a file, which it finds as its descriptor 3, and returns
// its output. A tool whose context ends is asked to stop with SIGINT, which
// e2fsck takes as a wish to leave the file system in order.
func (t tool) run(ctx context.Context, file *os.File, arguments ...string) (string, error) {
	path, err := t.find()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, arguments...)
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
		cmd.Args = append(cmd.Args, "/proc/self/fd/3")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) }
	cmd.WaitDelay = toolGrace
	// Settings of the user, of which e2fsprogs has many, must not change what
	// the tool does; an empty configuration stands for no file in /etc.
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC",
		"MKE2FS_CONFIG=/dev/null", "E2FSCK_CONFIG=/dev/null", "MKE2FS_SKIP_CHECK_MSG=1",
	}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return output.String(), &toolError{name: t.name, output: firstLines(output.String()), err: err}
	}
	return output.String(), nil
}

// firstLines is enough of a tool's output for an error, on one line.
func firstLines(output string) string {
	const enough = 400
	text := strings.Join(strings.Fields(output), " ")
	if len(text) > enough {
		text = text[:enough] + "…"
	}
	return text
}
