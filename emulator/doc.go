// Package emulator is the driver: a storage system that serves CSI's Identity,
// Controller and Node services over a backend's volumes.
//
//	e, err := emulator.New(ctx, emulator.Config{Backend: memory.New(memory.Options{})})
//	if err != nil { … }
//	defer e.Close()
//	err = e.Serve(ctx, "unix:///run/csi/csi.sock")
//
// What volumes are is kept by emulator/array, what a node does with them by
// emulator/node; this package turns CSI's messages into their calls.
package emulator
