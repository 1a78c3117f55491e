//go:build linux

package filesystem

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Probe says what lies on a device or image file. It reads the first 256 KiB and
// the last 128 KiB and nothing else, past the page cache, and writes nothing;
// content that shows in neither place is not seen. On a mounted device it sees
// what was written back.
//
// Where several signatures are found the outer one counts: a member of a RAID or
// volume group is never reported as the file system that its data happens to
// begin with. A wrong checksum does not hide a file system, but it is not Clean.
func Probe(ctx context.Context, path string) (Content, error) {
	if err := ctx.Err(); err != nil {
		return Content{}, fmt.Errorf("probe %s: %w", path, err)
	}
	// Opening must not wait, should the path turn out to be a pipe.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return Content{}, fmt.Errorf("probe device: %w", err)
	}
	defer file.Close()
	size, block, err := deviceSize(file)
	if err != nil {
		return Content{}, fmt.Errorf("probe device: %w", err)
	}
	if block {
		if err := readDirectly(file); err != nil {
			return Content{}, fmt.Errorf("probe %s: %w", path, err)
		}
	}
	content, err := identify(file, size)
	if err != nil {
		return Content{}, fmt.Errorf("probe %s: %w", path, err)
	}
	return content, nil
}

// readDirectly turns to direct I/O. A file system that writes past the page cache
// of its device, as xfs and btrfs do, leaves old data there.
func readDirectly(file *os.File) error {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	if err != nil {
		return fmt.Errorf("read directly: %w", err)
	}
	return nil
}

// identify finds the content of an image.
func (im image) identify() Content {
	if im.isHalf() {
		return Content{Half: true}
	}
	for _, s := range signatures {
		if s.matches(im) {
			content := Content{Type: s.name}
			if s.describe != nil {
				s.describe(im, &content)
			}
			return content
		}
	}
	if im.isBlank(0) {
		return Content{}
	}
	return Content{Type: TypeUnknown}
}
