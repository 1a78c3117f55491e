//go:build !linux

package testenv

import (
	"testing"

	"github.com/csiemu/csiemu/internal/kernel"
)

// TmpfsDir skips the test, or fails it: there is no tmpfs.
func TmpfsDir(tb testing.TB) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Tmpfs)
	return tb.TempDir()
}

// SmallTmpfsDir skips the test, or fails it: there is no tmpfs.
func SmallTmpfsDir(tb testing.TB, _ int64) string {
	tb.Helper()
	return TmpfsDir(tb)
}

// XFSDir skips the test, or fails it: there is no XFS.
func XFSDir(tb testing.TB) string {
	tb.Helper()
	Need(tb, kernel.Root, kernel.Loop, kernel.XFS)
	return tb.TempDir()
}
