//go:build !linux

package main

// programs are the programs that scripts can run.
func programs() map[string]func() { return map[string]func(){"csiemu": main} }
