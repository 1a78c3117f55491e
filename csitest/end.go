package csitest

import (
	"context"
	"flag"
	"strings"
	"sync"
	"time"

	"github.com/csiemu/csiemu/internal/rmtree"
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
	whole := true
	if d.emulator != nil {
		if err := d.emulator.Teardown(ctx); err != nil {
			d.tb.Errorf("csitest: something is left in use: %v", err)
			whole = false
		}
	}
	d.close()
	d.remove(ctx, whole)
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
	for _, err := range d.emulator.Unbroken() {
		d.tb.Errorf("csitest: %v", err)
	}
	entries := d.Journal().Entries(0)
	if !d.tb.Failed() || len(entries) == 0 {
		return
	}
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

// remove removes the directory, but nothing that is mounted in it, and lets the
// guard go. What could not be taken away in order the guard takes by force.
func (d *Double) remove(ctx context.Context, whole bool) {
	if dir, made := d.made(); made {
		if err := rmtree.Remove(ctx, dir); err != nil {
			d.tb.Errorf("csitest: %v: something is left behind in it", err)
			whole = false
		}
	}
	if d.o.guard == nil {
		return
	}
	end := d.o.guard.Release
	if !whole {
		end = d.o.guard.Reap
	}
	if err := end(); err != nil {
		d.tb.Errorf("csitest: end the guard: %v", err)
	}
}

// leave keeps the volumes and says where they are.
func (d *Double) leave() {
	if d.emulator == nil {
		return // it did not start, and has no volumes
	}
	var paths []string
	for _, m := range d.emulator.Mounts() {
		paths = append(paths, m.Path)
	}
	d.close()
	dir, made := d.made()
	if d.o.open == nil || !made {
		return // plain directories where the test wanted them
	}
	d.tb.Logf("csitest: kept in %s; to remove it:\n"+
		"  umount %s\n"+
		"  losetup -n -O NAME,BACK-FILE | awk '$2 ~ \"%s|^/image\" {print $1}' | xargs -r losetup -d  # look first\n"+
		"  umount %s/store/volumes/*/breakable/mount  # of breakable volumes; ends their processes\n"+
		"  rm -r %s", dir, strings.Join(paths, " "), dir, dir, dir)
}
