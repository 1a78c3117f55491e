//go:build !linux

package leaks

import "context"

// Find finds nothing: real volumes need Linux.
func Find(context.Context) ([]Leak, error) { return nil, nil }

// Under finds nothing: real volumes need Linux.
func Under(context.Context, string) ([]Leak, error) { return nil, nil }
