//go:build linux

package loop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// attacherVariable makes this executable a process that attaches and detaches a
// volume, which it describes, until it is killed.
const attacherVariable = "CSIEMU_LOOP_TEST_ATTACHER"

type attacher struct {
	Store      string
	Volume     backends.Volume
	Attachment backends.Attachment
	// LeaveNothing attaches once, as a fixture does.
	LeaveNothing bool
}

func (a attacher) run() error {
	b, err := loop.New(loop.Options{Dir: a.Store, Autoclear: a.LeaveNothing})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if a.LeaveNothing {
		if _, err := b.Attach(ctx, a.Volume, a.Attachment); err != nil {
			return err
		}
		fmt.Println("started")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	fmt.Println("started")
	for {
		if _, err := b.Attach(ctx, a.Volume, a.Attachment); err != nil {
			return err
		}
		if err := b.Shape(ctx, a.Volume, backends.Shaping{IOPS: 1000}); err != nil {
			return err
		}
		if err := b.Detach(ctx, a.Volume, a.Attachment); err != nil {
			return err
		}
	}
}

// start runs it and waits until it has started.
func (a attacher) start(t *testing.T) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(a)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAttacherHelper$")
	cmd.Env = append(os.Environ(), attacherVariable+"="+string(text), "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}

// TestAttacherHelper is that process.
func TestAttacherHelper(t *testing.T) {
	text := os.Getenv(attacherVariable)
	if text == "" {
		t.Skip("it runs in a process that another test starts")
	}
	var a attacher
	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.NoError(t, a.run())
}

// A process that is killed while it attaches or detaches leaves nothing that the
// next one does not adopt or take away.
func TestABreakableVolumeWhoseArrayIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	for i := range 12 {
		a := attacher{Store: r.dir, Volume: v, Attachment: backends.Attachment{ID: newID("att")}}
		cmd := a.start(t)
		<-time.After(time.Duration(i*7) * time.Millisecond)
		kill(t, cmd)

		r.open()
		wanted := &a.Attachment
		if i%2 == 0 {
			wanted = nil
		}
		r.reopen(held(v, wanted))
		if wanted != nil {
			device := direct(t, a.Attachment.ID)
			_, err := device.ReadAt(aligned(4096), 0)
			require.NoError(t, err)
			require.NoError(t, device.Close())
			require.NoError(t, r.backend.Detach(t.Context(), v, a.Attachment))
		}
		requireNoDevice(t, a.Attachment.ID)
		requireNoHolder(t, v)
	}
}

func TestNothingIsLeftOfABreakableVolumeWhoseFixtureIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.breakable(mebibyte)
	a := attacher{Store: r.dir, Volume: v, Attachment: backends.Attachment{ID: newID("att")}, LeaveNothing: true}
	cmd := a.start(t)
	require.True(t, status(t, a.Attachment.ID).Autoclear)
	kill(t, cmd)
	require.Eventually(t, func() bool {
		_, deviceErr := loopdev.Find(t.Context(), a.Attachment.ID, -1, loopdev.Options{})
		_, holderErr := fusefile.Ask(t.Context(), holderDir(v))
		return errors.Is(deviceErr, loopdev.ErrNotBound) && errors.Is(holderErr, fusefile.ErrNotServing)
	}, 10*time.Second, 5*time.Millisecond)
	requireNoMount(t, v)
}
