package emulator_test

import (
	"testing"

	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	if runAsService() {
		return
	}
	testenv.Main(m)
}
