package csitest_test

import (
	"testing"

	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	if isVictim() {
		victim()
		return
	}
	testenv.Main(m)
}
