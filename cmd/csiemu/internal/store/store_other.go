//go:build !linux

package store

// Real volumes need Linux.
var (
	ofSystem []string
	kinds    map[string]kind
)
