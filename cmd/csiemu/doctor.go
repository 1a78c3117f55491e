package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/leaks"
	"github.com/csiemu/csiemu/internal/kernel"
)

const doctorText = `Say what this machine's kernel can do for csiemu, what is lost without it, and
what earlier runs left behind: loop devices and mounts of csiemu's whose state
directory no emulator has open.

It changes nothing.`

// diagnosis is what doctor finds; its JSON form is for programs.
type diagnosis struct {
	Abilities []kernel.Answer `json:"abilities"`
	Leaks     []leaks.Leak    `json:"leaks"`
}

func newDoctor() *cobra.Command {
	var stateDir, output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, and what earlier runs left",
		Long:  doctorText,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor(cmd.Context(), cmd.OutOrStdout(), stateDir, output)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "directory of volumes to ask for reflink, too")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "form of the answer: text, json")
	return cmd
}

func doctor(ctx context.Context, out io.Writer, stateDir, output string) error {
	if output != "text" && output != "json" {
		return usage("read --output: %q is no form: give text or json", output)
	}
	left, err := leaks.Find(ctx)
	if err != nil {
		return err
	}
	d := diagnosis{Abilities: kernel.Report(ctx, stateDir), Leaks: left}
	if output == "text" {
		return d.print(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}

// print writes one aligned line an ability and one a leak.
func (d diagnosis) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, a := range d.Abilities {
		answer := "ok"
		if !a.OK {
			answer = "missing"
		}
		fmt.Fprintf(w, "%s\t%s\twithout: %s\n", answer, a.Feature, a.Without)
		if !a.OK {
			fmt.Fprintf(w, "\t\t  %s%s\n", a.Reason, inParentheses(a.Remedy))
		}
	}
	for _, l := range d.Leaks {
		fmt.Fprintf(w, "left\t%s\t%s of %s: %s\n", l.Name, l.Kind, l.Of, l.Remedy)
	}
	if len(d.Leaks) == 0 {
		fmt.Fprintln(w, "ok\tleaks\tnone: no device and no mount without an emulator")
	}
	return w.Flush()
}

func inParentheses(remedy string) string {
	if remedy == "" {
		return ""
	}
	return " (" + remedy + ")"
}
