package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csiemu/csiemu/internal/nearest"
)

// ownVariable begins the environment variables of this program.
const ownVariable = "CSIEMU_"

// warnOfVariables writes a line for each variable of the environment that is not one
// of this program's, but nearly: it would be ignored in silence. One that is like
// none may be another program's, as those that Kubernetes sets for a Service called
// csiemu. Variables of other commands than the one that runs are known, as manifests
// and shells set one environment for all.
func warnOfVariables(out io.Writer, root *cobra.Command, environment []string) {
	known := knownVariables(root)
	var rests []string
	for _, name := range known {
		if rest, own := strings.CutPrefix(name, ownVariable); own {
			rests = append(rests, rest)
		}
	}
	for _, entry := range slices.Sorted(slices.Values(environment)) {
		name, _, _ := strings.Cut(entry, "=")
		rest, own := strings.CutPrefix(name, ownVariable)
		if !own || slices.Contains(known, name) {
			continue
		}
		if near := nearest.Word(rest, rests); near != "" {
			fmt.Fprintf(out, "%s: environment variable %s is not known: did you mean %s%s?\n", root.Name(), name, ownVariable, near)
		}
	}
}

// knownVariables are those of all flags of all commands, by name.
func knownVariables(root *cobra.Command) []string {
	known := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			for _, name := range variables(f) {
				known[name] = true
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	return slices.Sorted(maps.Keys(known))
}
