//go:build linux

package filesystem_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	if device := os.Getenv(victimVariable); device != "" {
		if err := beVictim(device); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}
