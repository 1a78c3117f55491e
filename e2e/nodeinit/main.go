// Command nodeinit is the first process of a node's namespaces (network, processes,
// mounts), which package cluster starts. It arranges the mounts, says so by closing
// descriptor 3 after a byte, and reaps what the programs of the node leave.
//
//	nodeinit DIR NAME
//
// DIR is the directory of the node's files, NAME that of the host from now on. When this process ends, the kernel ends
// all others of the node.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: nodeinit DIR NAME")
		os.Exit(2)
	}
	// SIGCHLD must be asked for before there can be children.
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	if err := begin(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "nodeinit:", err)
		os.Exit(1)
	}
	for range children {
		reap()
	}
}

func begin(dir, name string) error {
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("name the host: %w", err)
	}
	if err := mounts(dir); err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	_, err := ready.Write([]byte{1})
	return errors.Join(err, ready.Close())
}

// reap takes the states of all children that have ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
