package main

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/demo"
	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
)

const demoText = `Lead volumes through their whole life over a unix socket, with real data: every
line is a step with its time, and with the checksum of the data that was read
back and is what was written. Everything is taken away at the end, also after
^C or a failure.`

func newDemo() *cobra.Command {
	var backend, dir string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the life of volumes, step by step",
		Long:  demoText,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if backend != "" {
				if err := store.Check(backend, "."); err != nil {
					return usageError{err}
				}
			}
			// Further signals must not interrupt the taking away.
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return demo.Run(ctx, demo.Options{Backend: backend, Dir: dir, Out: cmd.OutOrStdout()})
		},
	}
	cmd.Flags().StringVar(&backend, "backend", "", "backend to show: "+strings.Join(store.Names(), ", ")+" (default: all that this machine can)")
	cmd.Flags().StringVar(&dir, "dir", "", "where volumes lie meanwhile (default the directory for temporary files)")
	return cmd
}
