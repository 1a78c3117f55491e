package rpc_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"unix:///csi/csi.sock":                  "/csi/csi.sock",
		"UNIX:///csi/csi.sock":                  "/csi/csi.sock",
		"unix:///csi//./csi.sock":               "/csi/csi.sock",
		"unix://csi.sock":                       "csi.sock",
		"unix://dir/csi.sock":                   "dir/csi.sock",
		"/csi/csi.sock":                         "/csi/csi.sock",
		"/with space/ö.sock":                    "/with space/ö.sock",
		"/" + strings.Repeat("x", 97) + ".sock": "/" + strings.Repeat("x", 97) + ".sock",
	}
	for text, path := range good {
		e, err := rpc.ParseEndpoint(text)
		require.NoError(t, err, text)
		require.Equal(t, rpc.Endpoint{Network: "unix", Address: path}, e, text)
	}
	bad := map[string]string{
		"":                                       "it is empty",
		"csi.sock":                               "neither unix:///path.sock nor an absolute path",
		"unix:csi.sock":                          "neither unix:///path.sock nor an absolute path",
		"unix://":                                "names no socket",
		"unix:///csi/csi.sock/":                  "names a directory",
		"unix:///csi":                            "ends in .sock",
		"/csi/csi.socket":                        "ends in .sock",
		"unix://@csi.sock":                       "abstract sockets are not served",
		"unix://./@csi.sock":                     "abstract sockets are not served",
		"unix://..":                              "names a directory",
		"unix:///a\nb.sock":                      "control character",
		"unix:///a\x00.sock":                     "control character",
		"tcp://0.0.0.0:1":                        `scheme "tcp" is not served`,
		"http://x/y.sock":                        `scheme "http" is not served`,
		"/" + strings.Repeat("x", 200) + ".sock": "(sun_path)",
	}
	for text, reason := range bad {
		_, err := rpc.ParseEndpoint(text)
		require.ErrorContains(t, err, reason, text)
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add("unix:///csi/csi.sock")
	f.Add("/csi.sock")
	f.Add("tcp://x")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := rpc.ParseEndpoint(text)
		if err != nil {
			return
		}
		again, err := rpc.ParseEndpoint(e.String())
		require.NoError(t, err, "what was parsed parses again")
		require.Equal(t, e, again)
	})
}
