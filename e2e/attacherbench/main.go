// Command attacherbench measures attachers against a real API server and etcd, in
// one run: csiemu's and external-attacher's, with their defaults and with settings
// that projects have published, and beside them a bare client that only makes the
// same writes. Run it in the directory of this module, after the programs were
// built; `make bench-attacher` does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	csiemu string
	// attachments are made for each contender, few for those that are slow.
	attachments, few int
	objects          int
	latencies        string
	run              *regexp.Regexp
	rounds           int
}

func main() {
	var o options
	var run string
	flag.StringVar(&o.csiemu, "csiemu", "../bin/csiemu", "the csiemu to measure")
	flag.IntVar(&o.attachments, "attachments", 1000, "VolumeAttachments for each contender")
	flag.IntVar(&o.few, "few", 60, "VolumeAttachments for contenders that are known to be slow")
	flag.IntVar(&o.objects, "objects", 20_000, "attached VolumeAttachments, and as many volumes, whose memory is measured; 0 for none")
	flag.StringVar(&o.latencies, "latencies", "0,500ms", "what the driver takes for a call, each in turn")
	flag.StringVar(&run, "run", "", "regular expression of the contenders to measure")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each is measured; the median counts")
	flag.Parse()
	var err error
	if o.run, err = regexp.Compile(run); err != nil {
		fmt.Fprintln(os.Stderr, "attacherbench: read -run:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = bench(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacherbench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, o options) (err error) {
	latencies, err := durations(o.latencies)
	if err != nil {
		return err
	}
	if o.csiemu, err = filepath.Abs(o.csiemu); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ab-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := newWorld(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()

	for _, latency := range latencies {
		if err := w.slow(ctx, latency); err != nil {
			return err
		}
		var rows []row
		for _, c := range contenders(o.csiemu) {
			if !o.run.MatchString(c.name) {
				continue
			}
			n := o.attachments
			if c.slow {
				n = o.few
			}
			r, err := w.measure(ctx, c, n, o.rounds)
			if err != nil {
				return fmt.Errorf("measure %s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "%s, driver %s: %.1f attaches/s, %.1f detaches/s\n", c.name, latency, r.attach.rate, r.detach.rate)
			rows = append(rows, r)
		}
		fmt.Printf("\nThe driver takes %s for a call\n\n", latency)
		printSpeed(os.Stdout, rows)
	}
	if o.objects == 0 {
		return nil
	}
	rows, err := w.memory(ctx, o)
	if err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	fmt.Printf("\nResident memory with %d volumes, all attached\n\n", o.objects)
	printMemory(os.Stdout, rows)
	return nil
}

// patience is how long one phase of one contender may take.
const patience = 10 * time.Minute
