package e2e_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	scenariosPath  = "../docs/attacher.md"
	scenariosBegin = "| Scenario | Calls | Writes of external-attacher and of `--strict` | csiemu, where otherwise | Why |\n|---|---|---|---|---|\n"
)

// checkScenarios holds the table of the page against what was seen, or writes it.
func checkScenarios(t *testing.T) {
	var rows strings.Builder
	for _, s := range scenarios() {
		ours := ""
		if s.ours.calls != nil {
			ours = "calls " + strings.Join(s.ours.calls, ", ") + "; "
		}
		if s.ours.writes != nil {
			ours += strings.Join(s.ours.writes, ", ")
		}
		rows.WriteString("| " + strings.Join([]string{s.name, strings.Join(s.calls, ", "), strings.Join(s.writes, ", "), ours, s.ours.why}, " | ") + " |\n")
	}
	page, err := os.ReadFile(scenariosPath)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(page), scenariosBegin)
	require.True(t, found, "%s has no table", scenariosPath)
	old, tail, _ := strings.Cut(rest, "\n\n")
	if *update {
		require.NoError(t, os.WriteFile(scenariosPath, []byte(head+scenariosBegin+rows.String()+"\n"+tail), 0o644))
		return
	}
	require.Equal(t, strings.TrimSpace(rows.String()), strings.TrimSpace(old), "the table of %s", scenariosPath)
}
