package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnknownVariablesAreWarnedAbout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ variable, warning string }{
		"a letter is missing":      {"CSIEMU_ENDPINT=x", "csiemu: environment variable CSIEMU_ENDPINT is not known: did you mean CSIEMU_ENDPOINT?\n"},
		"the words are run in one": {"CSIEMU_STATEDIR=x", "csiemu: environment variable CSIEMU_STATEDIR is not known: did you mean CSIEMU_STATE_DIR?\n"},
		"nothing is like it":       {variable: "CSIEMU_SERVICE_HOST=10.0.0.1"},
		"an empty one, too":        {"CSIEMU_BACKNED=", "csiemu: environment variable CSIEMU_BACKNED is not known: did you mean CSIEMU_BACKEND?\n"},
		"a flag of one command":    {variable: "CSIEMU_STATE_DIR=/x"},
		"a flag of another":        {variable: "CSIEMU_SECOND_NODE=x"},
		"one of tests":             {variable: "CSIEMU_REQUIRE=loop"},
		"one of another program":   {variable: "CSI_ENDPINT=x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			warnOfVariables(&out, newRoot(os.LookupEnv), []string{"PATH=/bin", test.variable})
			require.Equal(t, test.warning, out.String())
		})
	}
}
