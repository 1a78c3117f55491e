package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The table of flags in the document is that of the command.
func TestAttacherIsDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/attacher.md")
	require.NoError(t, err)
	var rows strings.Builder
	cmd := newAttacher()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := ""
		if f.DefValue != "" {
			value = " `" + f.DefValue + "`"
		}
		fmt.Fprintf(&rows, "| `--%s` |%s | %s |\n", f.Name, value, f.Usage)
	})
	require.Contains(t, string(document), "|---|---|---|\n"+rows.String()+"\n")
}

func TestAttacherRefusesMistakes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args string
		want string
	}{
		"no workers":                  {"--worker-threads 0", "read --worker-threads: 0 is less than 1"},
		"no writes":                   {"--writes 0", "read --writes: 0 is less than 1"},
		"a negative page":             {"--max-entries -1", "read --max-entries: -1 is negative"},
		"no time":                     {"--timeout 0s", "read --timeout: 0s is not more than 0"},
		"two endpoints":               {"--http-endpoint :0 --metrics-address :0", "give one of --http-endpoint and --metrics-address"},
		"profiles of nothing":         {"--enable-pprof", "--enable-pprof needs --http-endpoint"},
		"a path of metrics":           {"--metrics-path metrics", `read --metrics-path: "metrics" does not begin with /`},
		"a lease that runs out":       {"--leader-election --leader-election-lease-duration 5s", "the lease is to be renewed in time"},
		"a lease without a namespace": {"--leader-election", "needs --leader-election-namespace outside a pod"},
		"a label":                     {"--leader-election --leader-election-namespace ns --leader-election-labels x", `read --leader-election-labels: "x" is no label`},
		"a level":                     {"--log-level loud", `read --log-level: "loud" is no level`},
		"an argument":                 {"leader-election", "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			status := run(t.Context(), append([]string{"attacher"}, strings.Fields(test.args)...), nowhere, io.Discard, &stderr)
			require.Equal(t, exitUsage, status)
			require.Contains(t, stderr.String(), test.want)
		})
	}
}

// nowhere is an environment without variables.
func nowhere(string) (string, bool) { return "", false }

func TestAttacherTakesFlagsFromTheEnvironment(t *testing.T) {
	t.Parallel()
	var f attacherFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.define(flags)
	require.NoError(t, fromEnvironment(flags, func(name string) (string, bool) {
		value, ok := map[string]string{
			"CSIEMU_CSI_ADDRESS": "unix:///csi.sock", "CSIEMU_LEADER_ELECTION": "true", "POD_NAMESPACE": "ns",
			"CSIEMU_LEADER_ELECTION_LABELS": "a:b,c=d", "CSIEMU_TIMEOUT": "1m", "CSIEMU_STRICT": "true",
		}[name]
		return value, ok
	}))
	require.NoError(t, f.check())
	require.Equal(t, "unix:///csi.sock", f.csiAddress)
	require.Equal(t, time.Minute, f.config.Timeout)
	require.True(t, f.config.Strict)
	require.Equal(t, "ns", f.election.Namespace)
	require.Equal(t, map[string]string{"a": "b", "c": "d"}, f.election.Labels)
}

func TestAttacherSaysWhatItLacksOutsideAPod(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, exitFailed, run(ctx, []string{"attacher"}, nowhere, io.Discard, &stderr))
	require.Contains(t, stderr.String(), "give a kubeconfig elsewhere")
}
