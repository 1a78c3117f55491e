//go:build !linux

package testenv

import (
	"context"
	"testing"
)

func kernelLeftovers(context.Context, string) []string { return nil }

// TmpfsDir skips the test: there is no tmpfs here.
func TmpfsDir(tb testing.TB) string { tb.Skip("tmpfs needs Linux"); return "" }

// XFSDir skips the test: there is no xfs here.
func XFSDir(tb testing.TB) string { tb.Skip("xfs needs Linux"); return "" }
