package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// lookupFunc is os.LookupEnv or a test's own.
type lookupFunc func(name string) (string, bool)

// alsoFrom is the annotation of a flag that names a further environment
// variable, less strong than the flag's own.
const alsoFrom = "csiemu-environment"

// variables are the environment variables of a flag, the strongest first.
func variables(f *pflag.Flag) []string {
	own := "CSIEMU_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	return append([]string{own}, f.Annotations[alsoFrom]...)
}

// fromEnvironment sets each flag that the command line left out from its
// environment variables. An empty variable counts as not set, because manifests
// often cannot leave one out.
func fromEnvironment(flags *pflag.FlagSet, lookup lookupFunc) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "help" || f.Name == "version" {
			return
		}
		for _, name := range variables(f) {
			value, ok := lookup(name)
			if !ok || value == "" {
				continue
			}
			if err := flags.Set(f.Name, value); err != nil {
				errs = append(errs, usage("take --%s from %s: %s", f.Name, name, wrongValue(err)))
			}
			return
		}
	})
	return errors.Join(errs...)
}
