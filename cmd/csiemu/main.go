// Command csiemu is a storage system for tests: it serves the Container Storage
// Interface over real volumes on one machine.
//
// Exit status: 0 when what was asked was done (for serve: it was told to end),
// 1 when it failed while running, 2 when the command line was wrong.
package main

import (
	"context"
	"os"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)) }
