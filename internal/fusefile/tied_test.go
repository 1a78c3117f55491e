//go:build linux

package fusefile_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// parentVariable makes this executable a process that starts a holder in the
// directory that it names, and waits.
const parentVariable = "CSIEMU_FUSEFILE_TEST_PARENT"

func beParent(dir string, tied bool) error {
	image, err := os.OpenFile(filepath.Join(dir, "image"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = fusefile.Start(context.Background(), fusefile.Config{
		Dir: filepath.Join(dir, "breakable"), VolumeID: "v", Image: image, Tied: tied,
	})
	if err != nil {
		return err
	}
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestWhatBecomesOfAHolderWhoseParentIsKilled(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.FUSE)
	for name, tied := range map[string]bool{"it is tied to it": true, "it is not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(parent, "image"), make([]byte, mebibyte), 0o600))
			dir := filepath.Join(parent, "breakable")
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", parentVariable, parent), fmt.Sprintf("%s_TIED=%t", parentVariable, tied))
			cmd.Stderr = os.Stderr
			_, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "started\n", line)
			require.NoError(t, fusefile.Behave(t.Context(), dir, fusefile.Behaviour{Faults: []fusefile.Fault{{Writes: true, Hang: true}}}))
			f, err := fusefile.Open(dir, false)
			require.NoError(t, err)
			defer f.Close()
			hangs := make(chan error, 1)
			go func() {
				_, err := f.WriteAt([]byte("waits"), 0)
				hangs <- err
			}()
			requireNothing(t, hangs)

			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
			if tied {
				require.NoError(t, <-hangs)
				require.NoError(t, f.Close())
				require.Eventually(t, func() bool {
					_, err := fusefile.Ask(t.Context(), dir)
					return err != nil
				}, patience, time.Millisecond)
				require.NoFileExists(t, fusefile.Path(dir))
				require.NoError(t, fusefile.Stop(t.Context(), dir, "v", true))
				return
			}
			requireNothing(t, hangs)
			require.NoError(t, fusefile.Stop(t.Context(), dir, "v", false))
			require.NoError(t, <-hangs)
			require.NoError(t, f.Close())
			require.NoError(t, fusefile.Stop(t.Context(), dir, "v", true))
		})
	}
}
