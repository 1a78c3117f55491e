// Package demo leads volumes through their whole life, as a CSI client of an
// emulator that it runs, and prints each step with its time and the checksum of
// the data that it compared.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/leaks"
	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/internal/kernel"
)

// Options describe a demo.
type Options struct {
	// Backend is the backend to show; empty means all that this machine can
	// show: loop and tmpfs, or memory where those are not to be had.
	Backend string
	// Dir is where the demo makes its own directory; empty means os.TempDir().
	Dir string
	// DataBytes is how much is written to each volume and compared at every
	// step, at most 32 MiB; 0 means 16 MiB.
	DataBytes int64
	// Out is where the lines go.
	Out io.Writer
}

// Run shows the demo. When it returns, also with an error or because ctx has
// ended, nothing that it made is left, or the error says what and where.
func Run(ctx context.Context, o Options) error {
	backends := []string{o.Backend}
	if o.Backend == "" {
		backends = choose(ctx, o.Out)
	}
	dir, err := makeDir(cmp.Or(o.Dir, os.TempDir()))
	if err != nil {
		return err
	}
	out, began := &lines{w: o.Out}, time.Now()
	total, err := show(ctx, out, backends, dir, cmp.Or(o.DataBytes, 16*mib))
	if err := errors.Join(err, leaveNothing(ctx, dir)); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "\n%d volumes in %.1f s: %d steps, %d checksums compared, all equal.\n"+
		"Nothing is left: no volume, no device, no mount, no file.\n",
		total.volumes, time.Since(began).Seconds(), out.steps, total.compared)
	return nil
}

// makeDir makes a directory of the demo's own without symbolic links on the way.
func makeDir(parent string) (string, error) {
	parent, err := filepath.EvalSymlinks(parent)
	if err == nil {
		parent, err = filepath.Abs(parent)
	}
	if err == nil {
		parent, err = os.MkdirTemp(parent, "csiemu-demo-")
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for the demo: %w", err)
	}
	return parent, nil
}

func show(ctx context.Context, out *lines, backends []string, dir string, data int64) (total shown, err error) {
	sockets, err := makeDir(os.TempDir())
	if err != nil {
		return total, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(sockets)) }()
	for _, backend := range backends {
		here, err := showBackend(ctx, out, backend, filepath.Join(dir, backend), filepath.Join(sockets, backend), data)
		if err != nil {
			return total, err
		}
		total.volumes += here.volumes
		total.compared += here.compared
	}
	return total, nil
}

// shown counts what a demo has shown.
type shown struct{ volumes, compared int }

// choose takes the backends that this machine can show.
func choose(ctx context.Context, out io.Writer) []string {
	for _, f := range []kernel.Feature{kernel.Root, kernel.Loop} {
		if err := kernel.Probe(ctx, f); err != nil {
			fmt.Fprintf(out, "No real volumes: %v. This is the memory backend; `csiemu doctor` says more.\n", err)
			return []string{store.Memory}
		}
	}
	return []string{"loop", "tmpfs"}
}

// leaveNothing removes the demo's directory after a last look at what may still
// hold it.
func leaveNothing(ctx context.Context, dir string) error {
	left, err := leaks.Under(context.WithoutCancel(ctx), dir)
	if err != nil {
		return fmt.Errorf("look what is left in %s: %w", dir, err)
	}
	if len(left) > 0 {
		return fmt.Errorf("left behind in %s: %v", dir, left)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the demo's directory: %w", err)
	}
	return nil
}
