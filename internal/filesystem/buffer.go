//go:build linux

package filesystem

import (
	"sync"
	"unsafe"
)

// buffer is memory that direct I/O can use. Every stage of a volume looks at its
// device, so they are kept and used again.
type buffer struct{ aligned []byte }

// bufferBytes is what nearly every use has room in.
const bufferBytes = readBackBytes

var buffers = sync.Pool{New: func() any { return &buffer{alignedBuffer(bufferBytes)} }}

// takeBuffer takes a buffer that nobody else has, and whose content is
// arbitrary. giveBack ends that.
func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) giveBack() { buffers.Put(b) }

// first returns the first n bytes.
func (b *buffer) first(n int64) []byte {
	if int64(len(b.aligned)) < n {
		b.aligned = alignedBuffer(n)
	}
	return b.aligned[:n]
}

// alignedBuffer is memory whose start is that of a block.
func alignedBuffer(n int64) []byte {
	b := make([]byte, n+blockBytes)
	skip := -uintptr(unsafe.Pointer(&b[0])) % blockBytes
	return b[skip : int64(skip)+n]
}
