package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/emulator"
)

const rootText = `csiemu is a storage system for tests: it serves the Container Storage Interface
over real volumes (loop devices, tmpfs) on one machine.

Every flag is also an environment variable: --state-dir is CSIEMU_STATE_DIR, and
flags that repeat take several values with commas between them. A flag on the
command line wins, and a variable that is nearly one of them is warned about.
--endpoint is CSI_ENDPOINT as well; CSIEMU_ENDPOINT wins over it.

Exit status: 0 done, 1 failed while running, 2 wrong command line.`

// Exit statuses of the command.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake on the command line, unlike a failure of what was
// asked.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs the command line args and returns the exit status. An error is one
// line on stderr.
func run(ctx context.Context, args []string, lookup lookupFunc, stdout, stderr io.Writer) int {
	root := newRoot(lookup)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

func newRoot(lookup lookupFunc) *cobra.Command {
	root := &cobra.Command{
		Use:           "csiemu",
		Short:         "A storage system for tests, served over CSI",
		Long:          rootText,
		Version:       emulator.Version(),
		Args:          unknownCommand,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			warnOfVariables(cmd.ErrOrStderr(), cmd.Root(), os.Environ())
			return fromEnvironment(cmd.Flags(), lookup)
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return wrongFlag(err) })
	root.SetVersionTemplate(versionText())
	root.AddCommand(newServe(), newCalls(), newFault(), newGet(), newDemo(), newConform(), newDoctor(), newRegistrar(), newAttacher(), newVersion())
	return root
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usage("unknown command %q: give one of %s", args[0], strings.Join(names, ", "))
}

// noArgs refuses arguments, which are most often a flag without its dashes.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("unexpected argument %q: this command takes flags only", args[0])
	}
	return nil
}
