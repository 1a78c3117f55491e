package demo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// walk leads one volume through its life.
type walk struct {
	server   *server
	clients  []*client // the first has the volume, the last its copies
	out      *lines
	undo     *undo
	shape    shape
	alone    bool // a copy cannot be mounted while its source is
	dir      string
	volume   *volume
	sum      string // of the data
	compared int
	writer   *writer
	ended    *entry // ends the writer
	flushed  uint64 // records of the writer when it was last ended
	atCut    uint64 // records of the writer before the last copy was asked for
	bytes    int64  // size since the expansion
	snapshot *csi.Snapshot
	uncut    *entry // deletes the snapshot
}

// run walks all the way; what is left when it fails is in undo.
func (w *walk) run(ctx context.Context) error {
	for _, s := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"create", w.create},
		{"attach", w.attach},
		{"stage", w.stage},
		{"publish", w.publish},
		{"write", w.write},
		{"snapshot", w.cutSnapshot},
		{"restore", w.restore},
		{"clone", w.clone},
		{"expand", w.expand},
		{"restart", w.restart},
		{"unpublish", w.unpublish},
		{"use again", w.useAgain},
		{"delete", w.remove},
	} {
		if err := s.do(ctx); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("%s: %s: %w", w.shape, s.name, err)
		}
	}
	return nil
}

// timed prints the step that do is.
func (w *walk) timed(name, what string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	w.out.step(name, what, "", time.Since(began))
	return nil
}

// same prints a step after which the data of v has been read and compared. The
// time is that of the step without the reading.
func (w *walk) same(ctx context.Context, v *volume, name, what string, took time.Duration) error {
	sum, err := v.data().sum(ctx)
	if err != nil {
		return err
	}
	if sum != w.sum {
		return fmt.Errorf("the data of %s has checksum %s, written was %s", v.name, sum, w.sum)
	}
	w.compared++
	w.out.step(name, what, sum, took)
	return nil
}

func (w *walk) create(ctx context.Context) error {
	w.volume = w.newVolume(w.clients[0], "volume")
	began := time.Now()
	bytes, err := w.volume.create(ctx, w.shape.bytes, nil)
	if err != nil {
		return err
	}
	w.out.step("create", size(bytes), "", time.Since(began))
	return nil
}

// newVolume names a volume; nothing is made yet.
func (w *walk) newVolume(c *client, name string) *volume {
	return &volume{client: c, undo: w.undo, shape: w.shape, name: name, dir: filepath.Join(w.dir, name)}
}

func (w *walk) attach(ctx context.Context) error {
	if !w.clients[0].attaches {
		return nil
	}
	return w.timed("attach", "to "+w.clients[0].nodeID, func() error { return w.volume.attach(ctx) })
}

func (w *walk) stage(ctx context.Context) error {
	what := "mounted"
	switch {
	case w.shape.block:
		what = "device found"
	case w.shape.backend == "loop":
		what = "formatted and mounted"
	}
	return w.timed("stage", what, func() error { return w.volume.stage(ctx) })
}

func (w *walk) publish(ctx context.Context) error {
	return w.timed("publish", "to a path of a workload", func() error { return w.volume.publish(ctx) })
}

func (w *walk) write(ctx context.Context) (err error) {
	began := time.Now()
	if w.sum, err = w.volume.data().fill(ctx); err != nil {
		return err
	}
	w.out.step("write", size(w.shape.data)+" at random, flushed", w.sum, time.Since(began))

	began = time.Now()
	total, used, err := w.volume.usage(ctx)
	if err != nil {
		return err
	}
	what := size(total)
	if !w.shape.block {
		what = fmt.Sprintf("%s of %s used", size(used), size(total))
	}
	return errors.Join(w.same(ctx, w.volume, "stats", what, time.Since(began)), w.startWriter(ctx))
}
