package link_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	good := map[string]rpc.Endpoint{
		"unix:///run/array.sock":  {Network: "unix", Address: "/run/array.sock"},
		"unix:///run/array":       {Network: "unix", Address: "/run/array"},
		"tcp://0.0.0.0:1234":      {Network: "tcp", Address: "0.0.0.0:1234"},
		"tcp://:1234":             {Network: "tcp", Address: ":1234"},
		"tcp://[::1]:80":          {Network: "tcp", Address: "[::1]:80"},
		"TCP://array.csiemu:1234": {Network: "tcp", Address: "array.csiemu:1234"},
	}
	for text, want := range good {
		e, err := link.ParseEndpoint(text)
		require.NoError(t, err, text)
		require.Equal(t, want, e, text)
	}
	for _, text := range []string{
		"", "array", "tcp://", "tcp://host", "tcp://host:", "tcp://host:http", "tcp://host:65536", "tcp://host:-1",
		"tcp://a/b:1", "http://host:1", "unix://", "unix://.", "unix://a/..", "/.", "/..",
	} {
		_, err := link.ParseEndpoint(text)
		require.ErrorContains(t, err, "parse endpoint", text)
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add("unix:///run/array.sock")
	f.Add("tcp://[::1]:80")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := link.ParseEndpoint(text)
		if err != nil {
			return
		}
		again, err := link.ParseEndpoint(e.String())
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}
