// Command podprog is the program of the tests' pods: it waits, and it writes and
// reads files and block devices. A test starts it as a pod's command, or in a
// running pod through the API.
//
//	podprog pause                   reap children until SIGTERM
//	podprog write PATH TEXT         make or replace a file, and sync it
//	podprog read PATH               print a file
//	podprog fill PATH BYTES SEED    write that many bytes from the start, and sync
//	podprog verify PATH BYTES SEED  read what fill wrote, and fail if it differs
//	podprog sum PATH BYTES          print the SHA-256 of that many bytes
//	podprog stat PATH               print type, owner, group, permissions and size
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "podprog:", err)
		os.Exit(1)
	}
}

// words are the numbers of arguments of each command, with itself.
var words = map[string]int{"pause": 1, "write": 3, "read": 2, "fill": 4, "verify": 4, "sum": 3, "stat": 2}

func run(out io.Writer, args []string) error {
	if len(args) == 0 || words[args[0]] != len(args) {
		return errors.New("usage: podprog pause|write|read|fill|verify|sum|stat and its arguments")
	}
	switch args[0] {
	case "pause":
		pause()
		return nil
	case "write":
		return write(args[1], args[2])
	case "read":
		return read(out, args[1])
	case "stat":
		return stat(out, args[1])
	}
	size, seed, err := numbers(args[2:])
	if err != nil {
		return err
	}
	switch args[0] {
	case "fill":
		return fill(args[1], size, seed)
	case "verify":
		return verify(args[1], size, seed)
	default:
		return sum(out, args[1], size)
	}
}
