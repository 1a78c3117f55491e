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
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText is the line of `csiemu version` and `csiemu --version`.
func versionText() string {
	return fmt.Sprintf("csiemu %s, %s, %s/%s\n", emulator.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
