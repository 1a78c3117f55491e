package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/leaks"
	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/conformance"
	"github.com/csiemu/csiemu/emulator"
)

const (
	// backendVolumeBytes is the default size of volumes of an own emulator.
	backendVolumeBytes = 32 << 20
	// backendAttachLimit is few enough to be reached by a row.
	backendAttachLimit = 8
	// leftLimit bounds the question what is left.
	leftLimit = 10 * time.Second
)

// serveTarget serves an emulator with two nodes in a directory below target.Dir,
// and tells the target of it. end stops it and says what it has left.
func serveTarget(ctx context.Context, backend string, target *conformance.Target) (end func() error, err error) {
	dir, sockets, err := makeDirs(target.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir), os.RemoveAll(sockets))
		}
	}()
	config := conformConfig(backend, dir, sockets)
	config.Backend, err = store.New(ctx, backend, store.Options{Dir: config.StateDir})
	if err != nil {
		return nil, err
	}
	emu, err := emulator.New(ctx, config)
	if err != nil {
		return nil, err
	}
	// The rows end before the server does, also when ctx ends.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	endpoints := config.Endpoints("unix://" + filepath.Join(sockets, "csi.sock"))
	listeners, err := emulator.Listen(serving, endpoints...)
	if err != nil {
		stop()
		return nil, errors.Join(err, emu.Close())
	}
	served := make(chan error, 1)
	go func() { served <- emu.ServeOn(serving, listeners) }()
	conn, err := dialDriver(endpoints[0])
	if err != nil {
		stop()
		return nil, errors.Join(err, <-served, emu.Close())
	}
	target.Controller, target.Dir = conn, dir
	describe(backend, config.Nodes[1].Name, target)
	return func() error {
		asking, asked := context.WithTimeout(context.WithoutCancel(ctx), leftLimit)
		defer asked()
		left := leftInArray(asking, csi.NewControllerClient(conn))
		err := errors.Join(left, conn.Close())
		stop()
		return errors.Join(err, <-served, emu.Close(), removeUnused(ctx, dir), os.RemoveAll(sockets))
	}, nil
}

// makeDirs makes a directory for volumes below parent, without symbolic links on
// the way, and one for sockets, whose paths have to be short.
func makeDirs(parent string) (dir, sockets string, err error) {
	if parent, err = filepath.EvalSymlinks(parent); err == nil {
		dir, err = os.MkdirTemp(parent, "csiemu-conform-")
	}
	if err != nil {
		return "", "", fmt.Errorf("make a directory for the emulator: %w", err)
	}
	if sockets, err = os.MkdirTemp("", "csiemu-"); err != nil {
		return "", "", errors.Join(fmt.Errorf("make a directory for sockets: %w", err), os.RemoveAll(dir))
	}
	return dir, sockets, nil
}

// conformConfig is an emulator with two nodes that is as strict as serve --strict:
// the specification demands fields that some callers have to be forgiven for.
func conformConfig(backend, dir, sockets string) emulator.Config {
	profile := emulator.DefaultProfile(backend)
	profile.MaxVolumesPerNode = backendAttachLimit
	return emulator.Config{
		Profile: profile, StateDir: filepath.Join(dir, "state"), Strict: true, StrictLocks: true,
		Pools: map[string]int64{emulator.DefaultPool: emulator.DefaultPoolBytes, "other": emulator.DefaultPoolBytes},
		Nodes: []emulator.Node{{Name: "node-a"}, {Name: "node-b", Endpoint: "unix://" + filepath.Join(sockets, "node-b.sock")}},
	}
}

// describe tells a target what is known of the emulator that conformConfig
// describes, where the flags do not.
func describe(backend, secondNode string, target *conformance.Target) {
	for into, value := range map[*map[string]string]map[string]string{
		&target.OtherParameters:    {"pool": "other"},
		&target.ModifiedParameters: {"health": "DEGRADED:SlowDisk"},
		&target.RefusedParameters:  {"colour": "blue"},
	} {
		if *into == nil {
			*into = value
		}
	}
	if key := emulator.DefaultProfile(backend).NodeTopologyKey; key != "" && target.OtherTopology == nil {
		target.OtherTopology = map[string]string{key: secondNode}
	}
	if target.SecondNodeID == "" {
		target.SecondNodeID = secondNode
	}
	if backend == store.Memory {
		target.NoData = true // it keeps none
	}
}

// leftInArray says which volumes and snapshots are still there.
func leftInArray(ctx context.Context, controller csi.ControllerClient) error {
	volumes, err := controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		return fmt.Errorf("list what is left: %w", err)
	}
	snapshots, err := controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	if err != nil {
		return fmt.Errorf("list what is left: %w", err)
	}
	var left []string
	for _, v := range volumes.GetEntries() {
		left = append(left, "volume "+v.GetVolume().GetVolumeId())
	}
	for _, s := range snapshots.GetEntries() {
		left = append(left, "snapshot "+s.GetSnapshot().GetSnapshotId())
	}
	if len(left) > 0 {
		return fmt.Errorf("the rows left %s", strings.Join(left, ", "))
	}
	return nil
}

// removeUnused removes the emulator's directory, unless something uses it.
func removeUnused(ctx context.Context, dir string) error {
	left, err := leaks.Under(context.WithoutCancel(ctx), dir)
	if err != nil {
		return fmt.Errorf("look what is left in %s: %w", dir, err)
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind in %s: %v", dir, left)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the emulator's directory: %w", err)
	}
	return nil
}
