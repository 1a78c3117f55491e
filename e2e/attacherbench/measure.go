package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/journal"
)

// phase is the attaching or the detaching of all.
type phase struct {
	// rate is a second's, writes an attachment's, requests to change the API.
	rate, writes float64
	// duplicates are the calls of the driver beyond one an attachment.
	duplicates int
	// cpu is the processor time that one takes.
	cpu time.Duration
}

// row is what was measured of a contender.
type row struct {
	contender
	attach, detach phase
}

// worker is what works: a process, or the bare client.
type worker interface {
	// pause and resume stop and continue it. A paused one sees nothing.
	pause() error
	resume() error
	// cpu is the processor time used so far, 0 if it is not known.
	cpu() (time.Duration, error)
	stop() error
}

// measure has a contender attach and detach n volumes, in rounds, and returns the
// medians.
func (w *world) measure(ctx context.Context, c contender, n, rounds int) (row, error) {
	r := row{contender: c}
	var attaches, detaches []phase
	for round := range rounds {
		a, d, err := w.round(ctx, c, fmt.Sprintf("v%d-%d", time.Now().UnixNano(), round), n)
		if err != nil {
			return r, err
		}
		attaches, detaches = append(attaches, a), append(detaches, d)
	}
	r.attach, r.detach = median(attaches), median(detaches)
	return r, nil
}

func median(phases []phase) phase {
	slices.SortFunc(phases, func(a, b phase) int { return int(a.rate*1000) - int(b.rate*1000) })
	return phases[len(phases)/2]
}

func (w *world) round(ctx context.Context, c contender, set string, n int) (attach, detach phase, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var finalizers []string
	if c.finalized {
		finalizers = []string{finalizer}
	}
	if err := w.volumes(ctx, set, n+1, finalizers...); err != nil {
		return attach, detach, err
	}
	works, err := w.start(ctx, c)
	if err != nil {
		return attach, detach, err
	}
	defer func() { err = errors.Join(err, works.stop()) }()
	// The last one shows that it works; what it does to begin with is not
	// measured.
	if err := w.warm(ctx, set, n); err != nil {
		return attach, detach, err
	}
	if attach, err = w.phase(ctx, works, n, "ControllerPublishVolume", attached, func() error { return w.attachments(ctx, set, n) }); err != nil {
		return attach, detach, fmt.Errorf("attach: %w", err)
	}
	if detach, err = w.phase(ctx, works, n, "ControllerUnpublishVolume", gone, func() error { return w.detachments(ctx, set, n) }); err != nil {
		return attach, detach, fmt.Errorf("detach: %w", err)
	}
	return attach, detach, w.discard(ctx, set, n+1)
}

// warm has the volume behind the first n attached and detached.
func (w *world) warm(ctx context.Context, set string, n int) error {
	for _, step := range []struct {
		do      func() error
		reached func(watch.EventType, *storage.VolumeAttachment) bool
	}{
		{func() error { return w.attachment(ctx, set, n) }, attached},
		{func() error { return w.detachment(ctx, set, n) }, gone},
	} {
		waiting, err := w.await(ctx)
		if err != nil {
			return err
		}
		if err := step.do(); err != nil {
			waiting.stop()
			return err
		}
		if err := waiting.wait(ctx, 1, step.reached); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
	}
	return nil
}

// phase asks for something of all while the worker stands still, and measures from
// when it goes on until all is done.
func (w *world) phase(ctx context.Context, works worker, n int, method string, reached func(watch.EventType, *storage.VolumeAttachment) bool, ask func() error) (phase, error) {
	var p phase
	if err := works.pause(); err != nil {
		return p, err
	}
	if err := ask(); err != nil {
		return p, err
	}
	waiting, err := w.await(ctx)
	if err != nil {
		return p, err
	}
	defer waiting.stop()
	writes, err := w.writes(ctx)
	if err != nil {
		return p, err
	}
	used, err := works.cpu()
	if err != nil {
		return p, err
	}
	w.journal.Clear()
	began := time.Now()
	if err := works.resume(); err != nil {
		return p, err
	}
	if err := waiting.wait(ctx, n, reached); err != nil {
		return p, err
	}
	took := time.Since(began)
	usedNow, err := works.cpu()
	if err != nil {
		return p, err
	}
	if err := w.settle(ctx, works, &writes); err != nil {
		return p, err
	}
	match, err := journal.ParseMatch(method)
	if err != nil {
		return p, err
	}
	p.rate = float64(n) / took.Seconds()
	p.writes = float64(writes) / float64(n)
	p.duplicates = max(0, w.journal.Count(match)-n)
	p.cpu = (usedNow - used) / time.Duration(n)
	return p, nil
}

// settle waits until the API server sees no more writes, and turns what it had
// counted before into what it counted since.
func (w *world) settle(ctx context.Context, _ worker, writes *int) error {
	quiet := time.NewTicker(500 * time.Millisecond)
	defer quiet.Stop()
	last := -1
	for {
		now, err := w.writes(ctx)
		if err != nil {
			return err
		}
		if now == last {
			*writes = now - *writes
			return nil
		}
		last = now
		select {
		case <-quiet.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// running is a process of a contender.
type running struct{ p *process.Process }

func (r *running) pause() error  { return r.p.Signal(syscall.SIGSTOP) }
func (r *running) resume() error { return r.p.Signal(syscall.SIGCONT) }

func (r *running) cpu() (time.Duration, error) { return cpuOf(r.p.PID()) }

func (r *running) stop() error {
	return errors.Join(r.resume(), r.p.Stop())
}

// start starts a contender.
func (w *world) start(ctx context.Context, c contender) (worker, error) {
	if len(c.command) == 0 {
		return newBare(ctx, w, c.finalized)
	}
	args := append(c.command[1:len(c.command):len(c.command)], "--csi-address="+w.endpoint[len("unix://"):], "--kubeconfig="+w.plane.Kubeconfig)
	p, err := process.Start(process.Command{Name: "attacher", Dir: w.dir, Path: c.command[0], Args: args})
	if err != nil {
		return nil, err
	}
	return &running{p: p}, nil
}
