package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/cmd/csiemu/internal/leaks"
	"github.com/csiemu/csiemu/internal/kernel"
)

func TestDiagnosisIsTwoTables(t *testing.T) {
	t.Parallel()
	abilities := []kernel.Answer{
		{Feature: "loop", OK: true, Without: "no loop volumes"},
		{Feature: "root", Without: "no real volumes", Reason: strings.Repeat("because ", 20), Remedy: "be root"},
	}
	const table = `ok       loop
missing  root  without: no real volumes
               because because because because because because because because because because because
               because because because because because because because because because
               be root

`
	for name, test := range map[string]struct {
		found diagnosis
		leaks string
	}{
		"no leaks":               {diagnosis{Leaks: []leaks.Leak{}}, "leaks: none: no device and no mount without an emulator\n"},
		"leaks not looked for":   {diagnosis{LeaksNotLookedFor: "needs root"}, "leaks: not looked for: needs root\n"},
		"a leak with its advice": {diagnosis{Leaks: []leaks.Leak{{Kind: "mount", Name: "/a", Of: "csiemu:vol", Remedy: "umount /a"}}}, "leaks: 1\nmount  /a\n       of csiemu:vol\n       umount /a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.found.Abilities = abilities
			var out bytes.Buffer
			require.NoError(t, test.found.print(&out))
			require.Equal(t, table+test.leaks, out.String())
			require.Equal(t, len(test.found.Leaks) > 0, test.found.verdict() != nil)
		})
	}
}
