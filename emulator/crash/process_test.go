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
	lines chan string
	// points are those that its start passed; killed is the one at which it
	// killed itself. They are complete when lines is closed or ready came.
	points []string
	killed string
}

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
// false for one that killed itself, as it was told to; tmp is where it puts
// temporary files.
func startChild(t *testing.T, s spec, tmp string) (c *child, ready bool) {
	t.Helper()
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	c = &child{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), exe), lines: make(chan string, 256)}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(encoded), "TMPDIR="+tmp)
	c.cmd.Stderr = &c.log
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	go func() {
		defer close(c.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			c.lines <- scan.Text()
		}
	}()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.reap()
				require.NotEmpty(t, c.killed, "the emulator did not start: %s", c.log.String())
				return c, false
			}
			if line == readyLine {
				return c, true
			}
			c.note(line)
		case <-late.C:
			c.kill()
			require.Fail(t, "the emulator does not start", "%s", c.log.String())
		}
	}
}

func (c *child) note(line string) {
	if name, ok := strings.CutPrefix(line, killedLine); ok {
		c.killed = name
	}
	if name, ok := strings.CutPrefix(line, pointLine); ok {
		c.points = append(c.points, name)
	}
}

// reap waits for the end of a process that is about to end.
func (c *child) reap() {
	for line := range c.lines {
		c.note(line)
	}
	_ = c.cmd.Wait() // its exit code is that of the signal
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
	for range c.lines {
		continue
	}
	require.NoError(t, c.cmd.Wait(), "%s", c.log.String())
}

// dial connects to a process. Each gets a connection of its own: on an old one a
// call could be lost before the end of the process before is noticed.
func dial(t *testing.T, socket string) (clients, *grpc.ClientConn) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return clients{csi.NewIdentityClient(conn), csi.NewControllerClient(conn), csi.NewGroupControllerClient(conn), csi.NewNodeClient(conn)}, conn
}
