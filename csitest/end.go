package csitest

import (
	"context"
	"flag"
	"os"
	"sync"
	"time"
)

// keep leaves what a double has made for a look at it.
var keep = flag.Bool("csitest.keep", false, "keep the volumes of doubles when their tests end, and print how to remove them")

const (
	// endLimit is how long the end of a double may take.
	endLimit = time.Minute
	// shownCalls is how many calls are in the log after a failure.
	shownCalls = 20
)

// end stops the calls, takes everything away and fails the test for what its code
// did wrong. It may be called for a double that did not start.
func (d *Double) end(ctx context.Context) {
	d.tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	d.stop()
	if d.emulator != nil {
		d.judge()
	}
	if *keep {
		d.leave()
		return
	}
	if d.emulator != nil {
		if err := d.emulator.Teardown(ctx); err != nil {
			d.tb.Errorf("csitest: something is left in use: %v", err)
		}
	}
	d.close()
	d.remove()
}

// stop ends the servers and waits for their calls.
func (d *Double) stop() {
	var all sync.WaitGroup
	for _, n := range d.nodes {
		all.Go(func() {
			_ = n.conn.Close()
			n.server.Stop()
		})
	}
	all.Wait()
}

// judge fails the test for calls that broke the lifecycle, and shows the last calls
// of one that failed.
func (d *Double) judge() {
	if !d.o.lenient {
		for _, f := range d.emulator.Findings() {
			d.tb.Errorf("csitest: the caller breaks the volume lifecycle: %s", f)
		}
	}
	if !d.tb.Failed() {
		return
	}
	entries := d.Journal().Entries(0)
	d.tb.Logf("csitest: the last %d of %d calls of %s:", min(len(entries), shownCalls), len(entries), d.tb.Name())
	for _, e := range entries[max(0, len(entries)-shownCalls):] {
		d.tb.Logf("  %s", e)
	}
}

func (d *Double) close() {
	if d.emulator == nil {
		return
	}
	if err := d.emulator.Close(); err != nil {
		d.tb.Errorf("csitest: end the driver: %v", err)
	}
}

// remove removes the directory, which fails where something is still mounted, and
// lets the guard go.
func (d *Double) remove() {
	if dir, made := d.made(); made {
		if err := os.RemoveAll(dir); err != nil {
			d.tb.Errorf("csitest: %v: something is left behind in it", err)
		}
	}
	if d.o.guard != nil {
		if err := d.o.guard.Release(); err != nil {
			d.tb.Errorf("csitest: end the guard: %v", err)
		}
	}
}

// leave keeps the volumes and says where they are.
func (d *Double) leave() {
	for _, m := range d.emulator.Mounts() {
		d.tb.Logf("csitest: kept: umount %s", m.Path)
	}
	d.close()
	if dir, made := d.made(); made {
		d.tb.Logf("csitest: kept: the loop devices that losetup -l shows over %s, to be freed by losetup -d; then rm -r %s", dir, dir)
	}
}
