package demo

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// expand doubles the volume under its writer. Where the kernel cannot grow the
// file system while it is mounted, the driver says so, and the next stage does.
func (w *walk) expand(ctx context.Context) error {
	began := time.Now()
	grown, err := w.clients[0].controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: w.volume.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * w.shape.bytes}, VolumeCapability: w.shape.capability(),
	})
	if err != nil {
		return err
	}
	w.bytes = grown.GetCapacityBytes()
	what := "to " + size(w.bytes) + ", while a writer writes"
	if grown.GetNodeExpansionRequired() {
		_, err = w.clients[0].node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: w.volume.id, VolumePath: w.volume.target(), StagingTargetPath: w.volume.staging(),
			CapacityRange: &csi.CapacityRange{RequiredBytes: w.bytes}, VolumeCapability: w.shape.capability(),
		})
	}
	took := time.Since(began)
	if status.Code(err) == codes.FailedPrecondition {
		if err := w.same(ctx, w.volume, "expand", "the device to "+size(w.bytes), took); err != nil {
			return err
		}
		w.out.note("FAILED_PRECONDITION: %s", status.Convert(err).Message())
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.full(ctx); err != nil {
		return err
	}
	return w.same(ctx, w.volume, "expand", what, took)
}

// full checks that the volume has its size on the node too.
func (w *walk) full(ctx context.Context) error {
	total, _, err := w.volume.usage(ctx)
	if err != nil {
		return err
	}
	return w.fills(total, w.bytes)
}

// restart ends the emulator and starts it again while the writer writes.
func (w *walk) restart(ctx context.Context) error {
	before, _, err := w.writer.state()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.server.end(); err != nil {
		return err
	}
	if err := w.server.start(ctx); err != nil {
		return err
	}
	if _, _, err := w.volume.usage(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := w.writer.await(ctx, 10); err != nil {
		return err
	}
	after, longest, err := w.writer.state()
	if err != nil {
		return err
	}
	if err := w.same(ctx, w.volume, "restart", "of the emulator, the volume in use", took); err != nil {
		return err
	}
	w.out.note("the writer wrote on: %d records, each within %s", after-before, milliseconds(longest))
	return nil
}

// unpublish ends the writer and takes the volume from its node.
func (w *walk) unpublish(ctx context.Context) error {
	if err := w.timed("unpublish", "the writer has ended", func() error { return w.withdraw(ctx) }); err != nil {
		return err
	}
	if err := w.timed("unstage", "from "+w.clients[0].nodeID, func() error { return w.undo.now(ctx, w.volume.unstaged) }); err != nil {
		return err
	}
	if w.volume.detached == nil {
		return nil
	}
	return w.timed("detach", "from "+w.clients[0].nodeID, func() error { return w.undo.now(ctx, w.volume.detached) })
}

// useAgain uses the volume once more, on the last node, so that nothing is read
// from memory that was written on the first.
func (w *walk) useAgain(ctx context.Context) error {
	w.volume.client = w.clients[len(w.clients)-1]
	began := time.Now()
	if err := w.volume.use(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if err := w.full(ctx); err != nil {
		return err
	}
	if w.shape.forgets {
		w.out.step("use again", size(w.bytes)+" without data, on "+w.volume.client.nodeID, "", took)
		return nil
	}
	if _, err := checkLog(w.volume.log(), w.flushed); err != nil {
		return err
	}
	return w.same(ctx, w.volume, "use again", size(w.bytes)+" on "+w.volume.client.nodeID+", its log whole", took)
}

func (w *walk) remove(ctx context.Context) error {
	if err := w.timed("delete", "the snapshot", func() error { return w.undo.now(ctx, w.uncut) }); err != nil {
		return err
	}
	return w.timed("delete", "the volume, taken from its node before", func() error { return w.volume.remove(ctx) })
}
