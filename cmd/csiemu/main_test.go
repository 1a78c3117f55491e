package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// TestMain makes this binary each of the programs that scripts run, by the name
// under which it was started.
func TestMain(m *testing.M) {
	if program := programs()[filepath.Base(os.Args[0])]; program != nil {
		program()
		return
	}
	testenv.Main(m)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               installPrograms,
		WorkdirRoot:         t.TempDir(),
		Deadline:            time.Now().Add(3 * time.Minute),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"call":    call,
			"empty":   empty,
			"exits":   exits,
			"serving": serving,
			"sigterm": sigterm,
		},
		Condition: func(name string) (bool, error) {
			return kernel.Probe(t.Context(), kernel.Feature(name)) == nil, nil
		},
	})
}

// installPrograms puts the programs in the PATH of a script, and gives it a
// directory for temporary files whose path leaves room for sockets in it.
func installPrograms(env *testscript.Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Join(env.WorkDir, ".bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	for name := range programs() {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	env.Defer(func() { _ = os.RemoveAll(tmp) })
	env.Setenv("TMPDIR", tmp)
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	return nil
}

// exits runs a program, and checks its exit status and that what it said of a
// failure is one line: exits 2 csiemu serve
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS[|STATUS] PROGRAM [ARGUMENT...]")
	}
	want, got := strings.Split(args[0], "|"), 0
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("run %s: %v", args[1], err)
	}
	stderr := ts.ReadFile("stderr")
	ts.Logf("%s", stderr)
	if !slices.Contains(want, strconv.Itoa(got)) {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
	if lines := strings.Count(stderr, "\n"); got != 0 && lines != 1 {
		ts.Fatalf("%d lines on stderr, want one", lines)
	}
}

// empty checks that nothing is in a directory: empty dir
func empty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty DIRECTORY")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(entries) > 0 {
		ts.Fatalf("%s is left in %s", entries[0].Name(), args[0])
	}
}

// serving waits until a driver answers on a socket, and compares its name:
// serving csi.sock loop.csiemu.dev
func serving(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: serving SOCKET DRIVER")
	}
	soon := backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond}
	conn, err := grpc.NewClient("unix://"+ts.MkAbs(args[0]),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	ts.Check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	ts.Check(err)
	if info.GetName() != args[1] {
		ts.Fatalf("driver %q serves, want %q", info.GetName(), args[1])
	}
}

// sigterm asks the commands in the background to end.
func sigterm(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: sigterm")
	}
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	}
}
