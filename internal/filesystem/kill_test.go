//go:build linux

package filesystem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
	"github.com/csiemu/csiemu/internal/loopdev"
)

// victimVariable makes this executable a process that formats the device named
// by it, after it said that it is ready, and is killed somewhere on the way.
const victimVariable = "FILESYSTEM_TEST_VICTIM"

// beVictim makes the template on one image, so that the format of the device is
// nothing but writing.
func beVictim(device string) error {
	fs, size := filesystem.Type(os.Args[1]), int64(0)
	if _, err := fmt.Sscan(os.Args[2], &size); err != nil {
		return err
	}
	maker := filesystem.NewMaker(filesystem.Options{})
	if _, err := maker.Format(context.Background(), os.Args[3], fs, size, false); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err := maker.Format(context.Background(), device, fs, size, false)
	return err
}

// A killed process leaves a device that is blank, half or whole, never anything
// else, and the next one makes it whole.
func TestKilledFormat(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	require.NoError(t, err)
	maker := shared()
	for fs, size := range types {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			needType(t, fs)
			rounds := 4
			if testing.Short() {
				rounds = 1
			}
			for range rounds {
				device := attach(t, newImage(t, size), loopdev.Config{}).Path()
				victim := exec.Command(executable, string(fs), fmt.Sprint(size), newImage(t, size))
				victim.Env = append(os.Environ(), victimVariable+"="+device)
				victim.Stderr = os.Stderr
				output, err := victim.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, victim.Start())
				var ready string
				_, err = fmt.Fscan(output, &ready)
				require.NoError(t, err)
				// From the first write on there is something; some looks later
				// is somewhere between there and the end.
				deadline := time.Now().Add(time.Minute)
				for looks := rand.IntN(8); looks > 0; {
					require.True(t, time.Now().Before(deadline), "the victim wrote nothing")
					if !probe(t, device).Blank() {
						looks--
					}
				}
				require.NoError(t, victim.Process.Kill())
				_ = victim.Wait() // it may have been through

				content := probe(t, device)
				if content.Half || content.Blank() {
					_, err = maker.Format(t.Context(), device, fs, size, false)
					require.NoError(t, err)
				} else {
					require.Equal(t, string(fs), content.Type)
				}
				require.NoError(t, check(t, device, fs))
				m := mount(t, device, fs)
				m.fill(t)
				m.unmount(t)
			}
		})
	}
}
