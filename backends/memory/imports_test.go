package memory_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports keeps the backend usable everywhere: it needs nothing but the
// contract, three small packages and the standard library.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"linux", "darwin", "windows"} {
		c := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
		c.Env = append(c.Environ(), "GOOS="+system)
		out, err := c.Output()
		require.NoError(t, err)
		const module = "github.com/csiemu/csiemu/"
		require.ElementsMatch(t, []string{
			module + "backends", module + "backends/memory", module + "internal/rmtree", module + "internal/safepath", module + "internal/step",
		}, strings.Fields(string(out)))
	}
}
