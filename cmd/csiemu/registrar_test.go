package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestRegistrarCommandLinesThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no kubelet":                {nil, "--kubelet-registration-path"},
		"both":                      {[]string{"--direct", "--kubelet-registration-path=/x"}, "give one of --direct and"},
		"direct without a node":     {[]string{"--direct"}, "--node-name"},
		"limits without direct":     {[]string{"--legacy-limits"}, "--legacy-limits needs --direct"},
		"two endpoints":             {[]string{"--http-endpoint=:1", "--health-port=2"}, "give one of --http-endpoint and"},
		"profiles without endpoint": {[]string{"--enable-pprof"}, "--enable-pprof needs"},
		"a timeout of nothing":      {[]string{"--timeout=0"}, "read --timeout"},
		"another mode":              {[]string{"--mode=x"}, "read --mode"},
		"another level":             {[]string{"--log-level=x"}, "read --log-level"},
		"another format":            {[]string{"--logging-format=x"}, "read --logging-format"},
		"no driver":                 {[]string{"--kubelet-registration-path=/x", "--csi-address="}, "the address is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			none := func(string) (string, bool) { return "", false }
			require.Equal(t, exitUsage, run(t.Context(), append([]string{"registrar"}, test.args...), none, &out, &errs))
			require.Contains(t, errs.String(), test.says)
		})
	}
}

func TestTheProbeModeOfOldManifestsEndsAtOnce(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	require.Zero(t, run(t.Context(), []string{"registrar", "--mode=kubelet-registration-probe"}, none, &out, &errs))
	require.Contains(t, errs.String(), "deprecated")
}

func TestTheTableOfRegistrarFlagsIsWhole(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/registrar.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.HasPrefix(cells[1], " `--") {
			documented[strings.Trim(cells[1], " `-")] = strings.Trim(cells[2], " `")
		}
	}
	defined := map[string]string{}
	newRegistrar().Flags().VisitAll(func(f *pflag.Flag) { defined[f.Name] = strings.Trim(f.DefValue, "[]") })
	require.Equal(t, defined, documented)
}
