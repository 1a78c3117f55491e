package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/journal"
)

var update = flag.Bool("update", false, "write the table of docs/callers.md anew")

const (
	tablePath  = "../docs/callers.md"
	tableBegin = "| Caller | Situation | Fault | What it did | What that means | Clause |\n|---|---|---|---|---|---|\n"
)

// checkTable holds rows against the page, or writes them into it. The row of a
// situation that did not take place is empty.
func checkTable(t *testing.T, rows []string) {
	page, err := os.ReadFile(tablePath)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(page), tableBegin)
	require.True(t, found, "%s has no table", tablePath)
	old, tail, _ := strings.Cut(rest, "\n\n")
	have := strings.Split(strings.TrimSpace(old), "\n")
	if *update {
		require.False(t, slices.Contains(rows, ""), "a table is written by a run of all situations")
		page := head + tableBegin + strings.Join(rows, "\n") + "\n\n" + tail
		require.NoError(t, os.WriteFile(tablePath, []byte(page), 0o644))
		return
	}
	require.Len(t, have, len(rows), "rows of %s", tablePath)
	for i, row := range rows {
		if row == "" {
			rows[i] = have[i]
		}
	}
	require.Equal(t, strings.Join(have, "\n"), strings.Join(rows, "\n"), "the table of %s", tablePath)
}

// row is the situation and what came of it, in the table.
func (s situation) row(st *stage) string {
	faults := make([]string, 0, len(s.faults))
	for _, f := range s.faults {
		faults = append(faults, "`"+f+"`")
	}
	does, waits := s.does, "after a wait"
	if len(s.breaks) > 0 {
		waits = "mostly at once"
	}
	for _, rule := range s.breaks {
		does += "; may break `" + rule + "`"
	}
	other, err := journal.ParseMatch(otherClaim)
	require.NoError(st, err)
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", s.caller, s.name, strings.Join(faults, "<br>"), calls(st.double.Journal().Entries(0), other, waits), does, s.clause)
}

// shown are the calls that the table is about.
var shown = []string{"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerExpandVolume"}

// calls is what was called, in words that are the same in every run: a call that is
// made again with the same outcome is not shown, as the fault says how often it
// fails, and a stale cache has a caller ask once more now and then. Calls that
// other matches are left out.
func calls(entries []*journal.Entry, other journal.Match, waits string) string {
	var b strings.Builder
	var last *journal.Entry
	for _, e := range entries {
		if !e.Done || !slices.Contains(shown, e.Method) || other.Matches(e) {
			continue
		}
		again := last != nil && last.Method == e.Method && last.Subject() == e.Subject()
		switch {
		case again && (last.Code == codes.OK || outcome(last) == outcome(e)):
			continue
		case again && outcome(last) == givenUp:
			b.WriteString(", then ") // when, is for the caller to choose
		case again:
			b.WriteString(", " + waits + " ")
		case last != nil:
			b.WriteString("; ")
			fallthrough
		default:
			b.WriteString("`" + e.Method + "` ")
		}
		b.WriteString(outcome(e))
		last = e
	}
	return b.String()
}

const givenUp = "given up"

// outcome is the code of a call. One that the caller's deadline ended is cancelled
// by whoever notices first.
func outcome(e *journal.Entry) string {
	if e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded {
		return givenUp
	}
	return journal.CodeName(e.Code)
}
