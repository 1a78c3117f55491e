package csitest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

const victimVariable = "CSITEST_VICTIM"

func tiers() map[string][]csitest.Option {
	return map[string][]csitest.Option{"memory": nil, "loop": {csitest.Loop()}, "tmpfs": {csitest.Tmpfs()}}
}

func isVictim() bool { return os.Getenv(victimVariable) != "" }

// victim publishes a volume and waits to be killed.
func victim() {
	dir := os.Getenv(victimVariable)
	tb := &printer{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d := csitest.New(tb, tiers()[os.Getenv("CSITEST_TIER")]...)
		life(&standIn{printer: tb}, d, dir)
	}()
	<-done
	fmt.Println("up:", tb.failed, strings.ReplaceAll(tb.text.String(), "\n", " "))
	select {}
}

// standIn is a testing.TB outside of a test.
type standIn struct {
	testing.TB
	*printer
}

func (*standIn) Helper()                     {}
func (s *standIn) Errorf(f string, a ...any) { s.printer.Errorf(f, a...) }
func (s *standIn) FailNow()                  { s.Fatalf("failed") }
func (s *standIn) Fatalf(f string, a ...any) { s.printer.Fatalf(f, a...) }
func (s *standIn) Logf(f string, a ...any)   { s.printer.Logf(f, a...) }
func (s *standIn) Skipf(f string, a ...any)  { s.printer.Skipf(f, a...) }
func (s *standIn) Cleanup(f func())          { s.printer.Cleanup(f) }
func (s *standIn) Failed() bool              { return s.printer.Failed() }
func (*standIn) Name() string                { return "victim" }
func (*standIn) Context() context.Context    { return context.Background() }

// A test process that is killed leaves nothing of its volumes.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	for _, tier := range []string{"loop", "tmpfs"} {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			temp, dir := t.TempDir(), t.TempDir()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), victimVariable+"="+dir, "CSITEST_TIER="+tier, "TMPDIR="+temp)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(line, "up: false"), line)
			require.Contains(t, mounts(t), dir+"/target")
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
			require.Eventually(t, func() bool {
				left, err := filepath.Glob(temp + "/csitest-*")
				return err == nil && len(left) == 0 && !strings.Contains(mounts(t), dir) && !strings.Contains(mounts(t), temp)
			}, 20*time.Second, 20*time.Millisecond)
		})
	}
}

func mounts(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	return string(text)
}
