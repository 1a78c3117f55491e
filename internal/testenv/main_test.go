package testenv

import (
	"os"
	"testing"
	"time"
)

// leakVariable makes the tests of a second process of this binary leak.
const leakVariable = "CSIEMU_TESTENV_LEAK"

func TestMain(m *testing.M) {
	if os.Getenv(leakVariable) != "" {
		run(m, 200*time.Millisecond) // what is left on purpose does not go by itself
	}
	Main(m)
}

// TestLeaks does in that process what its environment says.
func TestLeaks(t *testing.T) {
	t.Parallel()
	kind := os.Getenv(leakVariable)
	if kind == "" {
		t.Skip("is run by TestMainFindsWhatTestsLeave in a process of its own")
	}
	leak(t, kind)
}
