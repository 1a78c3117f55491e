//go:build linux

package kernel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// reportVariable makes this executable print a report, as the user whose id it
// holds.
const reportVariable = "CSIEMU_KERNEL_TEST_REPORT_AS"

func TestMain(m *testing.M) {
	if user := os.Getenv(reportVariable); user != "" {
		if err := printReport(user); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

func printReport(user string) error {
	var id int
	if _, err := fmt.Sscan(user, &id); err != nil {
		return err
	}
	if id != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return err
		}
		if err := syscall.Setresuid(id, id, id); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(kernel.Report(context.Background(), os.TempDir()))
}

// reportOf is the report of a process of its own.
func reportOf(t *testing.T, user int, attributes *syscall.SysProcAttr) map[kernel.Feature]kernel.Answer {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", reportVariable, user), "TMPDIR=/tmp")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = attributes
	out, err := cmd.Output()
	require.NoError(t, err)
	var answers []kernel.Answer
	require.NoError(t, json.Unmarshal(out, &answers))
	byFeature := map[kernel.Feature]kernel.Answer{}
	for _, a := range answers {
		byFeature[a.Feature] = a
	}
	return byFeature
}
