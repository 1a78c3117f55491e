//go:build linux

package treecopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"
)

const (
	// openLevels is how many levels of the tree, counted from the deepest, keep
	// their descriptors; those above are opened again on the way back.
	openLevels = 32
	// namesAtOnce is how many names of a directory are read at once.
	namesAtOnce = 512
)

// ErrInside is returned when the destination is the source, or lies inside it.
var ErrInside = errors.New("destination lies inside the source")

// walk goes through the tree depth first, with a stack of its own: the depth of
// the tree is the workload's choice.
type walk struct {
	stack []*directory
	links links
}

func (w *walk) run(ctx context.Context) error {
	for fresh := true; len(w.stack) > 0; {
		top := w.stack[len(w.stack)-1]
		if fresh {
			if err := w.fill(ctx, top); err != nil {
				return err
			}
		}
		var err error
		if fresh = len(top.pending) > 0; fresh {
			err = w.descend(ctx, top)
		} else {
			err = w.ascend(top)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill copies all that is in d, but only notes its directories.
func (w *walk) fill(ctx context.Context, d *directory) error {
	if identityOf(&d.stat) == w.stack[0].dstID { // it would never end
		return fmt.Errorf("list %q: %w", w.location(""), ErrInside)
	}
	for {
		names, err := d.src.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.copyEntry(ctx, d, name); err != nil {
				return fmt.Errorf("copy %q: %w", w.location(name), err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", w.location(""), err)
		}
	}
}

// descend makes the next pending directory of d and puts it on the stack.
func (w *walk) descend(ctx context.Context, d *directory) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	last := len(d.pending) - 1
	name := d.pending[last]
	d.pending[last], d.pending = "", d.pending[:last]

	child, err := makeDirectory(d, name)
	if err != nil {
		return fmt.Errorf("copy directory %q: %w", w.location(name), err)
	}
	w.stack = append(w.stack, child)
	if above := len(w.stack) - 1 - openLevels; above >= 0 {
		return w.stack[above].close()
	}
	return nil
}

// ascend finishes d, the top of the stack, and goes back to its parent.
func (w *walk) ascend(d *directory) error {
	if len(w.stack) == 1 {
		// Before the times of the root are set, which this changes.
		if err := w.links.removeStage(); err != nil {
			return err
		}
	} else if err := w.stack[len(w.stack)-2].reopenAbove(d); err != nil {
		return fmt.Errorf("leave directory %q: %w", w.location(""), err)
	}
	if err := d.copyAttributes(); err != nil {
		return fmt.Errorf("copy directory %q: %w", w.location(""), err)
	}
	w.stack = w.stack[:len(w.stack)-1]
	return d.close()
}

// location is the end of the path of name below the top of the stack, for
// errors: the whole of it can be longer than any message should be.
func (w *walk) location(name string) string {
	const elements = 8
	where := "/"
	from := max(len(w.stack)-elements, 0)
	if from > 0 {
		where = "..."
	}
	for _, d := range w.stack[from:] {
		where = path.Join(where, d.name)
	}
	return path.Join(where, name)
}

func (w *walk) close() error {
	var errs []error
	for _, d := range w.stack {
		errs = append(errs, d.close())
	}
	return errors.Join(append(errs, w.links.close())...)
}

// copyEntry copies what name is in d; a directory is only noted.
func (w *walk) copyEntry(ctx context.Context, d *directory, name string) error {
	e := entry{dir: d, name: name}
	if err := unix.Fstatat(int(d.src.Fd()), name, &e.stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if e.kind() == unix.S_IFDIR {
		d.pending = append(d.pending, name)
		return nil
	}
	if e.stat.Nlink == 1 {
		return e.copy(ctx)
	}
	if linked, err := w.links.link(e); linked || err != nil {
		return err
	}
	if err := e.copy(ctx); err != nil {
		return err
	}
	return w.links.remember(e)
}
