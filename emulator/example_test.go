package emulator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

// A test starts a driver, gives its endpoint to the code under test, and ends
// it.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	emu, err := emulator.New(ctx, emulator.Config{Backend: memory.New(memory.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	dir, _ := os.MkdirTemp("", "csi")
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	listeners, err := emulator.Listen(ctx, endpoint)
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- emu.ServeOn(ctx, listeners) }()

	// The code under test would do this.
	conn, _ := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	created, err := csi.NewControllerClient(conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:          "pvc-1",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	fmt.Println(created.GetVolume().GetCapacityBytes(), err)

	_ = conn.Close()
	stop()
	fmt.Println(<-served, emu.Close(), os.RemoveAll(dir))
	// Output:
	// 1073741824 <nil>
	// <nil> <nil> <nil>
}
