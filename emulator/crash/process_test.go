//go:build linux

package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// clients are the services of an emulator.
type clients struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.GroupControllerClient
	csi.NodeClient
}

// child is an emulator in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	log   output
	// ready is closed when it serves, ended when it is gone.
	ready, ended chan struct{}

	// points are those that its start passed; killed is the one at which it
	// killed itself. Both are complete when ended is closed, points as soon as it
	// serves.
	points []string
	killed string
}

// noSleepAtExit spares the end of each process the second that the race detector
// waits there.
const noSleepAtExit = "GORACE=atexit_sleep_ms=0"

// output is what a process wrote, to be read while it writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// patience is how long anything of a child may take on a busy machine.
const patience = 60 * time.Second

// startChild starts an emulator and waits until it serves or is gone. ready is
// false for one that ended, as it was told to or because it could not start; tmp
// is where it puts temporary files.
func startChild(t *testing.T, s spec, tmp string) (c *child, ready bool) {
	t.Helper()
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	c = &child{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), exe), ready: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(encoded), "TMPDIR="+tmp, noSleepAtExit)
	c.cmd.Stderr = &c.log
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	go c.listen(out)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-c.ready:
		return c, true
	case <-c.ended:
		c.reap()
		return c, false
	case <-late.C:
		c.kill()
		require.Fail(t, "the emulator does not start", "%s", c.log.String())
		return nil, false
	}
}

// listen reads what the process says until its end.
func (c *child) listen(out io.Reader) {
	defer close(c.ended)
	for scan := bufio.NewScanner(out); scan.Scan(); {
		line := scan.Text()
		if line == readyLine {
			close(c.ready)
		}
		if name, ok := strings.CutPrefix(line, killedLine); ok {
			c.killed = name
		}
		if name, ok := strings.CutPrefix(line, pointLine); ok {
			c.points = append(c.points, name)
		}
	}
}

// reap waits for the end of a process that is about to end.
func (c *child) reap() {
	<-c.ended
	_ = c.cmd.Wait() // its exit code is that of the signal
}

// isGone says whether the process has ended.
func (c *child) isGone() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// kill ends the process at whatever instruction it is.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	c.reap()
}

// end lets the process end by itself.
func (c *child) end(t *testing.T) {
	t.Helper()
	require.NoError(t, c.stdin.Close())
	<-c.ended
	require.NoError(t, c.cmd.Wait(), "%s", c.log.String())
}

// dial connects to a process.
func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return conn
}
