package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/leaks"
	"github.com/csiemu/csiemu/internal/kernel"
)

const doctorText = `Say what this machine's kernel can do for csiemu, what is lost without it, and
what earlier runs left behind: loop devices and mounts of csiemu's whose state
directory no emulator has open.

It changes nothing.

Exit status: 0 nothing was left behind, or nobody could look; 1 something was, or it
failed; 2 wrong command line.`

// diagnosis is what doctor finds; its JSON form is for programs.
type diagnosis struct {
	Abilities []kernel.Answer `json:"abilities"`
	// Leaks is null where they were not looked for.
	Leaks []leaks.Leak `json:"leaks"`
	// LeaksNotLookedFor says why leaks were not looked for; empty if they were.
	LeaksNotLookedFor string `json:"leaksNotLookedFor,omitempty"`
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
	if stateDir != "" {
		info, err := os.Stat(stateDir)
		if err != nil {
			return usage("read --state-dir: %w", err)
		}
		if !info.IsDir() {
			return usage("read --state-dir: %s is no directory", stateDir)
		}
	}
	d := diagnosis{Abilities: kernel.Report(ctx, stateDir), Leaks: []leaks.Leak{}}
	left, err := leaks.Find(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		d.Leaks, d.LeaksNotLookedFor = nil, "needs root"
	case err != nil: // the abilities often say why
		d.Leaks, d.LeaksNotLookedFor = nil, err.Error()
	case left != nil:
		d.Leaks = left
	}
	if err := d.write(out, output); err != nil {
		return err
	}
	return d.verdict()
}

// verdict is an error if anything was left behind.
func (d diagnosis) verdict() error {
	if n := len(d.Leaks); n > 0 {
		return fmt.Errorf("earlier runs left %d behind: do what is said of each", n)
	}
	return nil
}

func (d diagnosis) write(out io.Writer, output string) error {
	if output == "text" {
		return d.print(out)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}

// print writes a table of abilities and one of leaks, if there are any.
func (d diagnosis) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	widest := 0
	for _, a := range d.Abilities {
		widest = max(widest, len(a.Feature))
	}
	for _, a := range d.Abilities {
		if a.OK {
			fmt.Fprintf(w, "ok\t%s\n", a.Feature)
			continue
		}
		lines := wrap("without: " + a.Without)
		lines = append(lines, wrap(a.Reason)...)
		lines = append(lines, wrap(a.Remedy)...)
		fmt.Fprintf(w, "missing\t%-*s\t%s\n", widest, a.Feature, strings.Join(lines, "\n\t\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	switch {
	case d.LeaksNotLookedFor != "":
		fmt.Fprintf(out, "leaks: not looked for: %s\n", d.LeaksNotLookedFor)
	case len(d.Leaks) == 0:
		fmt.Fprintln(out, "leaks: none: no device and no mount without an emulator")
	default:
		fmt.Fprintf(out, "leaks: %d\n", len(d.Leaks))
	}
	for _, l := range d.Leaks {
		fmt.Fprintf(w, "%s\t%s\n\tof %s\n\t%s\n", l.Kind, l.Name, l.Of, l.Remedy)
	}
	return w.Flush()
}

// textWidth is the width of the last column, which leaves room for the others
// in 120.
const textWidth = 90

// wrap breaks a text into lines; a word that is longer has a line of its own.
func wrap(text string) (lines []string) {
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last < 0 || len(lines[last])+1+len(word) > textWidth {
			lines = append(lines, word)
			continue
		}
		lines[last] += " " + word
	}
	return lines
}
