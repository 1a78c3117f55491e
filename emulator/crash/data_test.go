//go:build linux

package crash_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

func (v *volume) dataPath() string {
	if v.capability.GetBlock() != nil {
		return v.target
	}
	return filepath.Join(v.target, "data")
}

// written is how much data a volume gets.
const written = 256 << 10

// write puts random bytes into the published volume, to stay.
func (v *volume) write() {
	v.l.t.Helper()
	if v.l.r.keepsBytes() {
		sum, err := writeTo(v.dataPath())
		require.NoError(v.l.t, err)
		v.sum = sum
	}
}

func writeTo(path string) (sum string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, h), rand.Reader, written); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), f.Sync()
}

func readFrom(path string) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	_, err = io.CopyN(h, f, written)
	return hex.EncodeToString(h.Sum(nil)), err
}

// requireData compares what the published volume holds with what was written.
func (v *volume) requireData() {
	v.l.t.Helper()
	v.requireSum(v.sum)
}

func (v *volume) requireSum(sum string) {
	v.l.t.Helper()
	if sum == "" {
		return
	}
	have, err := readFrom(v.dataPath())
	require.NoError(v.l.t, err)
	require.Equal(v.l.t, sum, have, "the bytes of volume %s", v.name)
}

// requireWritable writes to the published volume; it waits for a file system
// that is frozen still, and no longer.
func (v *volume) requireWritable() {
	v.l.t.Helper()
	if !v.l.r.keepsBytes() || v.readOnly {
		return
	}
	ctx, cancel := context.WithTimeout(v.l.t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		sum, err := writeTo(v.dataPath())
		v.sum = sum
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(v.l.t, err)
	case <-ctx.Done():
		require.Fail(v.l.t, "writers are held", "volume %s", v.name)
	}
}

// copyImage puts the bytes of a volume that is in use, and so has a journal to
// replay, into another one: what a lost machine leaves.
func (l *life) copyImage(from, to *volume) {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.r.state, "volumes", from.id, "image"))
	require.NoError(l.t, err)
	f, err := os.OpenFile(filepath.Join(l.r.state, "volumes", to.id, "image"), os.O_WRONLY, 0)
	require.NoError(l.t, err)
	_, err = f.Write(b)
	require.NoError(l.t, errors.Join(err, f.Close()))
	to.sum = from.sum
}
