package admin_test

import (
	"context"
	"fmt"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

// A program adds a fault to an emulator, as csiemu fault add does.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	emu, err := emulator.New(ctx, emulator.Config{Backend: memory.New(memory.Options{})})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer emu.Close()
	l, err := admin.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- admin.New(admin.Options{Emulator: emu}).Serve(ctx, l) }()

	client, err := admin.NewClient(admin.Address(l))
	if err != nil {
		fmt.Println(err)
		return
	}
	var added admin.FaultAdded
	err = client.Post(ctx, "/v1/faults", admin.FaultRequest{Rule: "CreateVolume: 2*return(UNAVAILABLE)->ok"}, &added)
	fmt.Println(added.ID, added.Rule, err)
	client.Close()
	stop()
	fmt.Println(<-served)
	// Output:
	// fault-1 CreateVolume: 2*return(UNAVAILABLE)->ok <nil>
	// <nil>
}
