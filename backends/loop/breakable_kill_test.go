//go:build linux

package loop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// attacherVariable makes this executable a process that attaches and detaches a
// volume, which it describes, until it is killed.
const attacherVariable = "CSIEMU_LOOP_TEST_ATTACHER"

type attacher struct {
	Store      string
	Volume     backends.Volume
	Attachment backends.Attachment
}

func (a attacher) run() error {
	b, err := loop.New(loop.Options{Dir: a.Store})
	if err != nil {
		return err
	}
	fmt.Println("started")
	for ctx := context.Background(); ; {
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
		text, err := json.Marshal(a)
		require.NoError(t, err)
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAttacherHelper$")
		cmd.Env = append(os.Environ(), attacherVariable+"="+string(text), "TMPDIR="+t.TempDir())
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "started\n", line)
		<-time.After(time.Duration(i*7) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed

		r.open()
		wanted := &a.Attachment
		if i%2 == 0 {
			wanted = nil
		}
		r.reopen(held(v, wanted))
		if wanted != nil {
			device := direct(t, a.Attachment.ID)
			_, err = device.ReadAt(aligned(4096), 0)
			require.NoError(t, err)
			require.NoError(t, device.Close())
			require.NoError(t, r.backend.Detach(t.Context(), v, a.Attachment))
		}
		_, err = loopdev.Find(t.Context(), a.Attachment.ID, -1, loopdev.Options{})
		require.ErrorIs(t, err, loopdev.ErrNotBound)
		requireNoHolder(t, v)
	}
}
