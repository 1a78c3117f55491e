package testenv

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// settle is how long what a test gave back may take to be gone: the kernel frees
// loop devices and processes after the call that asks for it.
const settle = 5 * time.Second

// Main runs the tests of a package with a temporary directory of their own
// (os.TempDir, testing.T.TempDir), and fails them if they leave anything behind:
// a loop device whose file is in that directory, a mount or a file there, an
// open file or loop device, a child process, a goroutine. What was left is
// listed and, but for goroutines and processes, taken away.
//
// It exits the process. A test binary that runs itself again as a helper process
// must turn to that before it calls Main.
//
// known are goroutines that a library which only tests use never ends.
func Main(m *testing.M, known ...goleak.Option) { run(m, settle, known...) }

func run(m *testing.M, settle time.Duration, known ...goleak.Option) {
	if err := checkRequired(os.Getenv(RequireVariable)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if flagValue("test.fuzzworker") == "true" {
		// A child of a process that is in Main already, killed at will.
		os.Exit(m.Run())
	}
	dir, restore, err := ownTempDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the tests' temporary directory:", err)
		os.Exit(2)
	}
	code := m.Run()
	restore()
	var found []string
	if flagValue("test.fuzz") == "" {
		found = leaks(dir, settle)
	} // else it is what the children had made when they were killed
	if code == 0 {
		// After a failed test goroutines tell nothing.
		if err := goleak.Find(known...); err != nil {
			found = append(found, err.Error())
		}
	}
	if err := undo(dir); err != nil {
		found = append(found, err.Error())
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests left something behind:\n\t%s\n", strings.Join(found, "\n\t"))
		code = max(code, 1)
	}
	os.Exit(code)
}

// flagValue is the value of a flag of package testing. The go command's fuzzing
// starts processes with one of their own (test.fuzzworker) beside the one that
// runs the tests.
func flagValue(name string) string {
	if !flag.Parsed() {
		flag.Parse()
	}
	f := flag.Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

// ownTempDir makes a directory and has os.TempDir return it.
func ownTempDir() (dir string, restore func(), err error) {
	dir, err = os.MkdirTemp("", "csiemu-test-")
	if err != nil {
		return "", nil, err
	}
	// Code under test refuses paths with symbolic links, such as macOS's /var.
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return "", nil, err
	}
	variable := "TMPDIR"
	if runtime.GOOS == "windows" {
		variable = "TMP"
	}
	before, set := os.LookupEnv(variable)
	if err := os.Setenv(variable, dir); err != nil {
		return "", nil, err
	}
	return dir, func() {
		if set {
			_ = os.Setenv(variable, before)
		} else {
			_ = os.Unsetenv(variable)
		}
	}, nil
}

// leaks lists what is left, once that does not change any more for the better.
func leaks(dir string, settle time.Duration) []string {
	late := time.NewTimer(settle)
	defer late.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		found := append(leftByKernel(dir), leftFiles(dir)...)
		if len(found) == 0 {
			return nil
		}
		select {
		case <-late.C:
			return found
		case <-again.C:
		}
	}
}

// leftFiles lists the files below dir, but not those of what is mounted there.
func leftFiles(dir string) (found []string) {
	const most = 20
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
			return nil
		case isMount(path):
			return fs.SkipDir
		}
		found = append(found, fmt.Sprintf("file %s (%v)", path, e.Type()))
		if len(found) == most {
			found = append(found, "and perhaps more files")
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		found = append(found, fmt.Sprintf("files that cannot be looked for: %v", err))
	}
	return found
}
