package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/fault"
)

const faultText = `Add faults to a running csiemu, list and remove them.
` + adminText + `

A fault is METHOD{FIELD=GLOB,…}: [N*][P%]ACTION->…

  to calls    ok, return(CODE,"message"), sleep(3m), hang, drop, after(30s), polls(3),
              crash(POINT), partial(POINT); csiemu fault points lists the points
  to volumes  with the METHOD Volume: eio, eio(writes), readonly, full(95%),
              slow(50ms), gone, corrupt(OFFSET,LENGTH), health(DEGRADED,"Reason"), heal`

const faultExample = `  csiemu fault add 'CreateVolume: 2*return(UNAVAILABLE)->ok'
  csiemu fault add 'Volume{name=pvc-*}: eio(writes)'
  csiemu fault rm fault-1`

func newFault() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use:     "fault",
		Short:   "Add, list and remove faults of a running csiemu",
		Long:    faultText,
		Example: faultExample,
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ask := func(use, short string, args cobra.PositionalArgs, run func(context.Context, *admin.Client, io.Writer, []string) error) *cobra.Command {
		sub := &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			return asking(cmd.Context(), address, func(ctx context.Context, c *admin.Client) error {
				return run(ctx, c, cmd.OutOrStdout(), args)
			})
		}}
		adminFlag(sub.Flags(), &address)
		return sub
	}
	cmd.AddCommand(
		ask("add FAULT...", "Add faults", faultTexts, addFaults),
		newFaultList(),
		ask("rm ID...", "Remove faults, and heal the volumes that suffer from them", someArgs("ID", "csiemu fault ls lists them"), removeFaults),
		ask("clear", "Remove all faults", noArgs, func(ctx context.Context, c *admin.Client, _ io.Writer, _ []string) error {
			return c.Delete(ctx, "/v1/faults")
		}),
		newFaultPoints(),
	)
	return cmd
}

// someArgs refuses a command without arguments.
func someArgs(what, hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("no %s is given: %s", what, hint)
		}
		return nil
	}
}

// faultTexts refuses what is no fault before anything is added.
func faultTexts(cmd *cobra.Command, args []string) error {
	for _, text := range args {
		if _, err := fault.Parse(text); err != nil {
			return usageError{err}
		}
	}
	return someArgs("fault", "give one as in 'CreateVolume: 2*return(UNAVAILABLE)->ok'")(cmd, args)
}

// addFaults prints the ids of the faults, and how volumes are broken.
func addFaults(ctx context.Context, c *admin.Client, out io.Writer, rules []string) error {
	for _, rule := range rules {
		var added admin.FaultAdded
		if err := c.Post(ctx, "/v1/faults", admin.FaultRequest{Rule: rule}, &added); err != nil {
			return err
		}
		if added.ID != "" {
			fmt.Fprintln(out, added.ID)
		}
		for _, volume := range slices.Sorted(maps.Keys(added.Mechanisms)) {
			fmt.Fprintf(out, "%s%s: %s\n", gap, volume, strings.Join(added.Mechanisms[volume], ", "))
		}
	}
	return nil
}

func removeFaults(ctx context.Context, c *admin.Client, _ io.Writer, ids []string) error {
	for _, id := range ids {
		if err := c.Delete(ctx, "/v1/faults/"+url.PathEscape(id)); err != nil {
			return err
		}
	}
	return nil
}

func newFaultList() *cobra.Command {
	var address, output string
	cmd := &cobra.Command{
		Use: "ls", Short: "List faults, with how often each has fired", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return asking(cmd.Context(), address, func(ctx context.Context, c *admin.Client) error {
				all := []fault.Status{}
				if err := c.Get(ctx, "/v1/faults", &all); err != nil {
					return err
				}
				if output == "json" {
					return writeJSON(cmd.OutOrStdout(), all)
				}
				var rows [][]string
				for _, s := range all {
					rows = append(rows, faultRow(s))
				}
				return writeTable(cmd.OutOrStdout(), []string{"ID", "FIRED", "STATE", "FAULT"}, rows)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "form of the answer: table, json")
	adminFlag(cmd.Flags(), &address)
	return cmd
}

// faultRow is a fault in the table. Those of volumes do not fire in calls.
func faultRow(s fault.Status) []string {
	fired, left := strconv.Itoa(s.Fired), "active"
	if rule, err := fault.Parse(s.Text); err == nil && rule.AboutBytes() {
		fired = "-"
	}
	if s.Spent {
		left = "spent"
	}
	return []string{s.ID, fired, left, s.Text}
}

// newFaultPoints needs no running csiemu: the points are this program's.
func newFaultPoints() *cobra.Command {
	return &cobra.Command{
		Use: "points", Short: "List the points that crash and partial can name", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var rows [][]string
			for _, p := range fault.KillPoints() {
				name := p.Name
				for _, line := range append(wrap(p.After), wrap("in "+strings.Join(p.During, ", "))...) {
					rows = append(rows, []string{name, line})
					name = ""
				}
			}
			return writeTable(cmd.OutOrStdout(), []string{"POINT", "REACHED AFTER"}, rows)
		},
	}
}
