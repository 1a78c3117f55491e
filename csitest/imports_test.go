package csitest_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports holds the whole list of modules that a user of csitest gets: none of
// Kubernetes, and nothing that only the command line or the tests need.
func TestImports(t *testing.T) {
	t.Parallel()
	for system, want := range map[string][]string{
		"linux": {
			"github.com/container-storage-interface/spec", "github.com/csiemu/csiemu", "github.com/dustin/go-humanize",
			"github.com/hanwen/go-fuse/v2", "golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
			"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
		"darwin": {
			"github.com/container-storage-interface/spec", "github.com/csiemu/csiemu", "github.com/dustin/go-humanize",
			"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
			"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc", "google.golang.org/protobuf",
		},
	} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
		list.Env = append(list.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := list.Output()
		require.NoError(t, err)
		got := strings.Fields(string(out))
		slices.Sort(got)
		require.Equal(t, want, slices.Compact(got), system)
	}
}
