package backendtest_test

import (
	"testing"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/backendtest"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	const noBytes = "a volume is a record; what a workload writes goes with the publication"
	backendtest.Run(t, backendtest.Harness{
		Open:        func(testing.TB, string) backends.Backend { return memory.New(memory.Options{}) },
		Filesystems: []backendtest.Filesystem{{Bytes: 1 << 20}, {Type: "ext4", Bytes: 1 << 20}, {Type: "xfs", Bytes: 1 << 20}},
		BlockBytes:  1 << 20,
		Lacks: map[backendtest.Lack]string{
			backendtest.Data:     noBytes,
			backendtest.Limit:    noBytes,
			backendtest.Devices:  "a target is an empty file: devices need a kernel and its privileges",
			backendtest.ReadOnly: "a target has the rights of its mode, which root passes over",
			backendtest.Fence:    "a directory cannot be taken away from those who use it",
			backendtest.Types:    noBytes,
			backendtest.Extents:  noBytes,
			backendtest.Loss:     noBytes,
		},
	})
}
