package conformance

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// dataBytes is how much is written where a row compares data.
const dataBytes = 1 << 20

// write writes bytes of one kind to a file or device, and waits until they are
// the volume's. It ends the row if that fails.
func (c *check) write(path string, offset, size int64, fill byte) {
	c.Helper()
	if err := writeAt(path, offset, size, fill); err != nil {
		c.fatalf("want to write %d bytes, got %v", size, err)
	}
}

func writeAt(path string, offset, size int64, fill byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(bytes.Repeat([]byte{fill}, int(size)), offset); err != nil {
		return err
	}
	return f.Sync()
}

// holds fails the row unless a file or device has only bytes of one kind there.
func (c *check) holds(path string, offset, size int64, fill byte) {
	c.Helper()
	f, err := os.Open(path)
	if err != nil {
		c.fatalf("want to read what was written, got %v", err)
	}
	got := make([]byte, size)
	n, err := f.ReadAt(got, offset)
	if err := errors.Join(err, f.Close()); err != nil {
		c.fatalf("want to read %d bytes, got %d and %v", size, n, err)
	}
	for i, b := range got {
		if b != fill {
			c.fatalf("want byte %q at offset %d, got %q", fill, offset+int64(i), b)
		}
	}
}

// refusesWrite fails the row if a file or device can be written.
func (c *check) refusesWrite(path string) {
	c.Helper()
	if err := writeAt(path, 0, chunk, 'x'); err == nil {
		c.Errorf("want an error for a write to a volume that was published for reading, got none")
	}
}

// deviceBytes is the size of a block device.
func (c *check) deviceBytes(path string) int64 {
	c.Helper()
	f, err := os.Open(path)
	if err != nil {
		c.fatalf("want to open the block device, got %v", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err := errors.Join(err, f.Close()); err != nil {
		c.fatalf("want to seek to the end of the block device, got %v", err)
	}
	return size
}

// fill writes to a file until that fails or most bytes are written, and returns
// how many were, and whether the file system said that it is full.
func (c *check) fill(path string, most int64) (written int64, full bool) {
	c.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		c.fatalf("want to make a file, got %v", err)
	}
	piece := bytes.Repeat([]byte{'f'}, 1<<20)
	for err == nil && written < most {
		var n int
		n, err = f.Write(piece)
		written += int64(n)
		if err == nil && written%(32<<20) == 0 {
			err = f.Sync() // delayed allocation finds its end here
		}
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		c.Errorf("want the file system full, got %v", err)
	}
	return written, err != nil
}

// empty fails the row if something is in a directory. What a file system puts
// into a new one does not count.
func (c *check) empty(dir string) {
	c.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		c.fatalf("want to read a directory, got %v", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" {
			c.Errorf("want an empty directory, got %s in it", filepath.Join(dir, e.Name()))
		}
	}
}
