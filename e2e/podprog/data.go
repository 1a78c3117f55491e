package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
)

// block is how many bytes are written or compared at once.
const block = 1 << 20

func numbers(args []string) (size int64, seed uint64, err error) {
	if size, err = strconv.ParseInt(args[0], 10, 64); err != nil || size < 0 {
		return 0, 0, fmt.Errorf("read BYTES: %q is no number of bytes", args[0])
	}
	if len(args) > 1 {
		if seed, err = strconv.ParseUint(args[1], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read SEED: %q is no whole number", args[1])
		}
	}
	return size, seed, nil
}

// pattern are the bytes of a seed, the same everywhere.
func pattern(size int64, seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return io.LimitReader(rand.NewChaCha8(key), size)
}

func write(path, text string) error {
	return store(path, os.O_CREATE|os.O_TRUNC, bytes.NewBufferString(text))
}

// fill writes into a file or a block device, which is not cut.
func fill(path string, size int64, seed uint64) error {
	return store(path, os.O_CREATE, pattern(size, seed))
}

func store(path string, flags int, data io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, block)
	_, err = io.Copy(w, data)
	return errors.Join(err, w.Flush(), f.Sync(), f.Close())
}

func read(out io.Writer, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func verify(path string, size int64, seed uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	want, have := pattern(size, seed), make([]byte, block)
	expected := make([]byte, block)
	for at := int64(0); at < size; at += block {
		n := min(block, size-at)
		if _, err := io.ReadFull(want, expected[:n]); err != nil {
			return err
		}
		if _, err := io.ReadFull(f, have[:n]); err != nil {
			return fmt.Errorf("read %s at byte %d: %w", path, at, err)
		}
		if !bytes.Equal(expected[:n], have[:n]) {
			return fmt.Errorf("compare %s: it differs from seed %d after byte %d", path, seed, at)
		}
	}
	return nil
}

func sum(out io.Writer, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.CopyN(hash, f, size); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "%x\n", hash.Sum(nil))
	return err
}

func stat(out io.Writer, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	_, err = fmt.Fprintf(out, "%s %d:%d %d\n", info.Mode(), owner.Uid, owner.Gid, info.Size())
	return err
}
