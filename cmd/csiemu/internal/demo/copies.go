package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// startWriter starts the workload that goes on until the volume is unpublished.
func (w *walk) startWriter(ctx context.Context) (err error) {
	// It outlives an interruption until its turn comes to be undone.
	w.writer, err = startWriter(context.WithoutCancel(ctx), w.volume.log(), w.flushed)
	if err != nil {
		return err
	}
	w.ended = w.undo.add("end the writer", func(context.Context) error { return w.writer.end() })
	return w.writer.await(ctx, 10)
}

// withdraw ends the writer and unpublishes the volume.
func (w *walk) withdraw(ctx context.Context) (err error) {
	if err := w.undo.now(ctx, w.ended); err != nil {
		return err
	}
	if w.flushed, _, err = w.writer.state(); err != nil {
		return err
	}
	return w.undo.now(ctx, w.volume.unpublished)
}

// resume undoes withdraw and unstage.
func (w *walk) resume(ctx context.Context) error {
	for _, do := range []func(context.Context) error{w.volume.stage, w.volume.publish, w.startWriter} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// held runs do, which cuts a copy of the volume, while writers are held as the
// shape needs it, and says how.
func (w *walk) held(ctx context.Context, do func() error) (how string, took time.Duration, err error) {
	switch w.shape.cut {
	case unpublished:
		if err := w.withdraw(ctx); err != nil {
			return "", 0, err
		}
		w.atCut = w.flushed
		began := time.Now()
		if err := do(); err != nil {
			return "", 0, err
		}
		took = time.Since(began)
		return "while unpublished", took, errors.Join(w.volume.publish(ctx), w.startWriter(ctx))
	case quiesced:
		how = "while the writer pauses"
		resume := w.writer.quiesce()
		defer resume()
	case frozen:
		how = "while a writer writes"
	}
	if w.atCut, _, err = w.writer.state(); err != nil {
		return "", 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return "", 0, err
	}
	took = time.Since(began)
	if w.shape.cut == frozen {
		if err := w.writer.await(ctx, 1); err != nil {
			return "", 0, err
		}
		_, longest, err := w.writer.state()
		if err != nil {
			return "", 0, err
		}
		how += ", held " + milliseconds(longest)
	}
	return how, took, nil
}

func (w *walk) cutSnapshot(ctx context.Context) error {
	how, took, err := w.held(ctx, func() error {
		made, err := w.clients[0].controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: w.volume.id, Name: "snapshot"})
		if err != nil {
			return err
		}
		w.snapshot = made.GetSnapshot()
		w.uncut = w.undo.add("delete the snapshot", func(ctx context.Context) error {
			_, err := w.clients[0].controller.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: w.snapshot.GetSnapshotId()})
			return err
		})
		return nil
	})
	if err != nil {
		return err
	}
	if !w.snapshot.GetReadyToUse() {
		return fmt.Errorf("snapshot %s is not ready to use", w.snapshot.GetSnapshotId())
	}
	return w.same(ctx, w.volume, "snapshot", "taken "+how, took)
}

func (w *walk) restore(ctx context.Context) error {
	v := w.newVolume(w.clients[len(w.clients)-1], "restored")
	began := time.Now()
	bytes, err := v.create(ctx, w.shape.bytes/2*3, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: w.snapshot.GetSnapshotId()},
	}})
	if err != nil {
		return err
	}
	return w.compareCopy(ctx, v, "restore", "", bytes, time.Since(began))
}

func (w *walk) clone(ctx context.Context) error {
	v := w.newVolume(w.clients[len(w.clients)-1], "cloned")
	var bytes int64
	how, took, err := w.held(ctx, func() (err error) {
		bytes, err = v.create(ctx, w.shape.bytes, &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: w.volume.id},
		}})
		return err
	})
	if err != nil {
		return err
	}
	return w.compareCopy(ctx, v, "clone", " "+how, bytes, took)
}

// compareCopy uses a copy on its node, compares the data, reads the writer's
// log, looks at the size, and takes the copy away again.
func (w *walk) compareCopy(ctx context.Context, v *volume, name, how string, bytes int64, took time.Duration) (err error) {
	if w.alone {
		if err := errors.Join(w.withdraw(ctx), w.undo.now(ctx, w.volume.unstaged)); err != nil {
			return err
		}
		how += ", its source unstaged"
		defer func() {
			if err == nil {
				err = w.resume(ctx)
			}
		}()
	}
	if err := v.use(ctx); err != nil {
		return err
	}
	total, _, err := v.usage(ctx)
	if err != nil {
		return err
	}
	if err := w.fills(total, bytes); err != nil {
		return err
	}
	if w.shape.forgets {
		w.out.step(name, size(bytes)+" without data, on "+v.client.nodeID, "", took)
		return v.remove(ctx)
	}
	newest, err := checkLog(v.log(), w.atCut)
	if err != nil {
		return err
	}
	if err := w.same(ctx, v, name, size(bytes)+" on "+v.client.nodeID+how, took); err != nil {
		return err
	}
	w.out.note("the writer's log is whole up to record %d; %d were flushed before", newest, w.atCut)
	return v.remove(ctx)
}

// fills checks that what the node reports is what was promised: a device of
// the exact size, or a file system over all of it but its own records.
func (w *walk) fills(total, promised int64) error {
	least := promised
	if !w.shape.block {
		least = promised / 100 * 85
	}
	if total < least || total > promised {
		return fmt.Errorf("the node reports %s, the volume has %s", size(total), size(promised))
	}
	return nil
}
