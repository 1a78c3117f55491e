package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/csitest"
)

// node-driver-registrar leaves its socket at SIGINT, and kubelets try dead sockets
// for minutes.
func TestASignalTakesTheRegistrationSocketAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal os.Signal
		// driver says that there is one; what is said before the signal is sent.
		driver bool
		said   string
	}{
		"SIGTERM":                    {syscall.SIGTERM, true, "offered the driver to the kubelet"},
		"SIGINT":                     {syscall.SIGINT, true, "offered the driver to the kubelet"},
		"SIGTERM without the driver": {syscall.SIGTERM, false, "wait for the driver"},
		"SIGINT without the driver":  {syscall.SIGINT, false, "wait for the driver"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "r") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			self, err := os.Executable()
			require.NoError(t, err)
			program, registry, driver := filepath.Join(dir, "csiemu"), filepath.Join(dir, "r"), filepath.Join(dir, "csi.sock")
			require.NoError(t, os.Symlink(self, program))
			require.NoError(t, os.Mkdir(registry, 0o700))
			if test.driver {
				driver = strings.TrimPrefix(csitest.New(t).Endpoint(), "unix://")
			}
			cmd := exec.CommandContext(t.Context(), program, "registrar", "--csi-address="+driver,
				"--kubelet-registration-path="+driver, "--plugin-registration-path="+registry)
			errs, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			var said bytes.Buffer
			for lines := bufio.NewScanner(io.TeeReader(errs, &said)); lines.Scan() && !strings.Contains(lines.Text(), test.said); {
			}
			require.Contains(t, said.String(), test.said)
			entries, err := os.ReadDir(registry)
			require.NoError(t, err)
			require.Equal(t, test.driver, len(entries) == 1)

			require.NoError(t, cmd.Process.Signal(test.signal))
			_, err = io.Copy(&said, errs)
			require.NoError(t, err)
			require.NoError(t, cmd.Wait(), said.String())
			entries, err = os.ReadDir(registry)
			require.NoError(t, err)
			require.Empty(t, entries)
			require.Contains(t, said.String(), "msg=ended")
		})
	}
}
