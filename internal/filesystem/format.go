//go:build linux

package filesystem

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
)

// Format makes a file system of sizeBytes on a device, which must be that long or
// longer, and returns its UUID. With sync it survives a lost machine, and so does
// every state in between.
//
// The device must be blank (a *NotBlankError says what else it is) and not in use (ErrInUse). A format
// that was interrupted, by a kill, an error or the end of ctx, leaves a device
// that Probe calls Half, and that the next Format discards and makes anew,
// whatever its type. Blank means that the first 256 KiB and the last 128 KiB
// are zeros and no signature is found; what lies between is taken to read as
// zeros, as it does on a new volume.
//
// backends.ErrOutOfRange is returned for a size below MinBytes or past the
// device's end, backends.ErrExhausted when the store is full, and a
// *kernel.NotSupportedError when mkfs is not in PATH.
func (m *Maker) Format(ctx context.Context, path string, t Type, sizeBytes int64, sync bool) (string, error) {
	t, err := ParseType(string(t))
	if err != nil {
		return "", err
	}
	dev, err := openDevice(ctx, path)
	if err != nil {
		return "", fmt.Errorf("format %s: %w", path, err)
	}
	defer dev.Close()
	if dev.size < sizeBytes {
		return "", fmt.Errorf("format %s with %d bytes, it has %d: %w",
			path, sizeBytes, dev.size, backends.ErrOutOfRange)
	}
	id, err := m.format(ctx, dev, shape{t, sizeBytes, dev.sector}, sync)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = fmt.Errorf("%w: %w", backends.ErrExhausted, err)
	}
	if err != nil {
		return "", fmt.Errorf("format %s with %s: %w", path, t, err)
	}
	return id.String(), nil
}

// format makes sure that nothing is lost, then writes.
func (m *Maker) format(ctx context.Context, dev target, s shape, sync bool) (uuid, error) {
	if err := ctx.Err(); err != nil {
		return uuid{}, err
	}
	content, err := identify(dev, dev.Size())
	switch {
	case err != nil:
		return uuid{}, err
	case !content.Half && !content.Blank():
		return uuid{}, &NotBlankError{content}
	case s.size < MinBytes(s.fs):
		return uuid{}, fmt.Errorf("%d bytes are asked for, %s needs %d: %w", s.size, s.fs, MinBytes(s.fs), backends.ErrOutOfRange)
	}
	t, err := m.template(ctx, s)
	if err != nil {
		return uuid{}, err
	}
	if content.Half {
		if err := discardHalf(ctx, dev); err != nil {
			return uuid{}, err
		}
	}
	who := newIdentity()
	return who.id, t.write(ctx, dev, who, sync)
}

// formatSteps are the points after each step of write.
var formatSteps = [...]string{"format.marked", "format.body", "format.superblock", "format.boot"}

// write puts the template on a blank device. Its order makes an interruption
// visible: the mark is there before anything else, and the superblock comes when
// all that it speaks of is there. After each step the device has it; with sync
// it has it for good. Without, the device may lose the order when the machine is
// lost, but not when a process is killed.
func (t *template) write(ctx context.Context, dev target, who identity, sync bool) (err error) {
	flush := dev.Settle
	if sync {
		flush = dev.Sync
	}
	const stepBody, stepPrimary = 1, 2
	steps := [][]piece{{{data: halfSector()}}, t.body, {t.primary}}
	if t.boot != nil {
		steps = append(steps, []piece{{data: t.boot}})
	}
	// What fails must not look complete. A device that is full shows it when its
	// cache is written out, after a write that took the mark away.
	visible := false
	defer func() {
		if err != nil && visible {
			_, markErr := dev.WriteAt(halfSector(), 0)
			err = errors.Join(err, markErr)
		}
	}()
	for i, pieces := range steps {
		visible = i >= stepPrimary
		for _, p := range pieces {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := dev.WriteAt(p.bytesFor(who), p.offset); err != nil {
				return fmt.Errorf("write %d bytes at %d: %w", len(p.data), p.offset, err)
			}
		}
		if err := flush(); err != nil {
			return err
		}
		if err := step.Done(ctx, formatSteps[i]); err != nil {
			return err
		}
		if i == stepBody {
			if err := t.verify(ctx, dev, who); err != nil {
				return err
			}
		}
	}
	return nil
}
