package main

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestVariablesOfFlags(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		environment map[string]string
		args        []string
		endpoint    string
		nodes       []string
	}{
		"nothing is given":                  {},
		"the flag's own variable":           {environment: map[string]string{"CSIEMU_CSI_END": "a"}, endpoint: "a"},
		"the common variable":               {environment: map[string]string{"CSI_ENDPOINT": "a"}, endpoint: "a"},
		"the own one is stronger":           {environment: map[string]string{"CSIEMU_CSI_END": "a", "CSI_ENDPOINT": "b"}, endpoint: "a"},
		"an empty one counts for nothing":   {environment: map[string]string{"CSIEMU_CSI_END": "", "CSI_ENDPOINT": "b"}, endpoint: "b"},
		"the flag is stronger":              {environment: map[string]string{"CSIEMU_CSI_END": "a"}, args: []string{"--csi-end=c"}, endpoint: "c"},
		"an empty flag is given, too":       {environment: map[string]string{"CSIEMU_CSI_END": "a"}, args: []string{"--csi-end="}},
		"several values of one that repeat": {environment: map[string]string{"CSIEMU_NODE": "a,b=unix://c"}, nodes: []string{"a", "b=unix://c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			endpoint := flags.String("csi-end", "", "")
			nodes := flags.StringSlice("node", nil, "")
			flags.Lookup("csi-end").Annotations = map[string][]string{alsoFrom: {"CSI_ENDPOINT"}}
			require.NoError(t, flags.Parse(test.args))
			require.NoError(t, fromEnvironment(flags, func(name string) (string, bool) {
				value, ok := test.environment[name]
				return value, ok
			}))
			require.Equal(t, test.endpoint, *endpoint)
			require.ElementsMatch(t, test.nodes, *nodes)
		})
	}
}
