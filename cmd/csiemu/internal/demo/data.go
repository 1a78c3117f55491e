package demo

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// chunk is the unit in which data is written and read.
const chunk = 1 << 20

// place is where bytes lie in a published volume: a file of a file system, or a
// range of a block device.
type place struct {
	path   string
	offset int64
	bytes  int64
}

// fill writes fresh random bytes, flushes them, and returns their checksum.
func (p place) fill(ctx context.Context) (string, error) {
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return "", fmt.Errorf("write data: %w", err)
	}
	defer f.Close()
	hash := sha256.New()
	w := io.MultiWriter(io.NewOffsetWriter(f, p.offset), hash)
	if err := copyBytes(ctx, w, rand.Reader, p.bytes); err != nil {
		return "", fmt.Errorf("write data: %w", err)
	}
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("flush data: %w", err)
	}
	return short(hash.Sum(nil)), nil
}

// sum reads the bytes back and returns their checksum.
func (p place) sum(ctx context.Context) (string, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return "", fmt.Errorf("read data: %w", err)
	}
	defer f.Close()
	hash := sha256.New()
	if err := copyBytes(ctx, hash, io.NewSectionReader(f, p.offset, p.bytes), p.bytes); err != nil {
		return "", fmt.Errorf("read data: %w", err)
	}
	return short(hash.Sum(nil)), nil
}

// copyBytes copies n bytes and looks at ctx between chunks.
func copyBytes(ctx context.Context, w io.Writer, r io.Reader, n int64) error {
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := io.CopyN(w, r, min(n, chunk))
		if err != nil {
			return err
		}
		n -= done
	}
	return nil
}

// short is the start of a checksum: as much as a person compares.
func short(sum []byte) string { return hex.EncodeToString(sum)[:10] }
