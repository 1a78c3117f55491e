package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/internal/kernel"
)

// showBackend runs an emulator over one backend, its state below dir, and walks a
// volume of each shape through it.
func showBackend(ctx context.Context, out *lines, backend, dir, sockets string, data int64) (total shown, err error) {
	nodes := []string{"node-a", "node-b"}
	if backend == "tmpfs" {
		nodes = nodes[:1] // its volumes live on one node
	}
	s := newServer(backend, dir, sockets, nodes...)
	if err := s.start(ctx); err != nil {
		return total, err
	}
	defer func() { err = errors.Join(err, s.end()) }()

	clients, err := newClients(ctx, s, nodes)
	defer func() {
		for _, c := range clients {
			c.conn.Close()
		}
	}()
	if err != nil {
		return total, err
	}
	for _, shape := range shapes(backend) {
		shape.data = data
		if err := missing(ctx, shape); err != nil {
			out.heading("%s: left out, %v", shape, err)
			continue
		}
		out.heading("%s", shape)
		w := &walk{
			server: s, clients: clients, out: out, undo: &undo{}, dir: filepath.Join(dir, "volumes"),
			shape: shape, alone: alone(ctx, shape),
		}
		err := w.run(ctx)
		if err = errors.Join(err, w.leaveNothing(ctx)); err != nil {
			return total, err
		}
		total.volumes++
		total.compared += w.compared
	}
	return total, nil
}

// missing says why this machine cannot have a shape.
func missing(ctx context.Context, s shape) error {
	if s.backend != "loop" || s.block {
		return nil
	}
	return kernel.Probe(ctx, kernel.Feature(s.fsType))
}

// alone reports whether a copy of a volume cannot be mounted beside its source.
func alone(ctx context.Context, s shape) bool {
	return s.fsType == "btrfs" && kernel.Probe(ctx, kernel.BtrfsTempFSID) != nil
}

// leaveNothing takes away what a walk that did not reach its end has made, and
// whatever the array got in a call whose answer was lost.
func (w *walk) leaveNothing(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if w.server.emulator == nil {
		if err := w.server.start(ctx); err != nil {
			return fmt.Errorf("start the emulator once more to take everything away: %w", err)
		}
	}
	return errors.Join(w.undo.all(ctx), w.clear(ctx), os.RemoveAll(w.dir))
}

// clear deletes every snapshot and volume that the array still has.
func (w *walk) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	controller := w.clients[0].controller
	snapshots, err := controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	if err != nil {
		return fmt.Errorf("list what is left: %w", err)
	}
	volumes, err := controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil {
		return fmt.Errorf("list what is left: %w", err)
	}
	var errs []error
	for _, e := range snapshots.GetEntries() {
		_, err := controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: e.GetSnapshot().GetSnapshotId()})
		errs = append(errs, err)
	}
	for _, e := range volumes.GetEntries() {
		_, err := controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: e.GetVolume().GetVolumeId()})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
