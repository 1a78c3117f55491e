package cluster_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/internal/testenv"
)

// victim is the variable whose value is the directory of a cluster that a further
// process of this program starts, to be killed with it.
const victim = "CSIEMU_E2E_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victim); dir != "" {
		if _, err := cluster.New(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	testenv.Main(m)
}
