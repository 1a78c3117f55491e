//go:build linux

package crash_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/csiemu/csiemu/internal/testenv"
)

// childVariable makes this test binary an emulator instead of running tests.
const childVariable = "CSIEMU_CRASH_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childVariable); spec != "" {
		if err := runChild(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}
