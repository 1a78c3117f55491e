package record

import (
	"os"
	"testing"

	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		os.Exit(helper())
	}
	testenv.Main(m)
}
