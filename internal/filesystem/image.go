//go:build linux

package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// headBytes covers the superblocks of everything in the table of
	// signatures; the last of them are the uberblocks of ZFS.
	headBytes = 256 << 10
	// tailBytes covers what md (format 0.90 lies up to 128 KiB from the end)
	// and GPT keep at the end of a device.
	tailBytes = 128 << 10
)

// image is what Probe looks at: the head and the tail of a device. They overlap
// on a small one.
type image struct {
	head, tail []byte
	size       int64
}

// look reads the head and the tail of a device of size bytes and calls f, which
// must keep nothing of the image.
func look(r io.ReaderAt, size int64, f func(image)) error {
	b := takeBuffer()
	defer b.giveBack()
	head, tail := min(size, headBytes), min(size, tailBytes)
	all := b.first(headBytes + tailBytes)
	im := image{head: all[:head], tail: all[headBytes : headBytes+tail], size: size}
	if err := readFull(r, im.head, 0); err != nil {
		return err
	}
	if err := readFull(r, im.tail, size-tail); err != nil {
		return err
	}
	f(im)
	return nil
}

// identify says what lies on a device of size bytes.
func identify(r io.ReaderAt, size int64) (content Content, err error) {
	err = look(r, size, func(im image) { content = im.identify() })
	return content, err
}

// readFull fills b; a device that ends early is an error.
func readFull(r io.ReaderAt, b []byte, offset int64) error {
	n, err := r.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes at %d: %w", len(b), offset, err)
}

// at returns n bytes at an offset of the device, or nil when they are not all in
// the head or all in the tail. A negative offset counts from the end.
func (im image) at(offset, n int64) []byte {
	if offset < 0 {
		offset += im.size
	}
	if offset < 0 || n < 0 || n > im.size || offset > im.size-n {
		return nil
	}
	if offset+n <= int64(len(im.head)) {
		return im.head[offset : offset+n]
	}
	if start := im.size - int64(len(im.tail)); offset >= start {
		return im.tail[offset-start : offset-start+n]
	}
	return nil
}

// has reports whether the device has the magic at the offset.
func (im image) has(offset int64, magic string) bool {
	return string(im.at(offset, int64(len(magic)))) == magic
}

// isBlank reports whether head and tail are all zero, but for the first skip
// bytes.
func (im image) isBlank(skip int) bool {
	return isZero(im.head[min(skip, len(im.head)):]) &&
		(im.size <= int64(len(im.head)) || isZero(im.tail))
}

// zeros is what isZero compares with; nobody writes to it.
var zeros [blockBytes]byte

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}
