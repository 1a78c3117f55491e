//go:build !linux

package testenv

import "testing"

var leakingOnLinux map[string]func(t *testing.T)
