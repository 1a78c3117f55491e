package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/emulator"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "csiemu %s, %s, %s/%s\n",
				emulator.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
