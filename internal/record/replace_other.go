//go:build !linux

package record

func replace(from, to string) error { return rename(from, to) }
