package e2e_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// situation is something that goes wrong under a sidecar, and what it does then.
type situation struct {
	// caller is the program of the sidecar, flags are those beyond the usual.
	caller string
	flags  []string
	// name is the situation in words, faults are what makes it.
	name   string
	faults []string
	// does and clause are words for the table: what the calls mean, and the
	// section of the specification that they are about.
	does, clause string
	// breaks are the rules of the volume lifecycle that the sidecar is known to
	// break here, if it is quick; any other finding fails the test.
	breaks []string
	// run makes the objects, and asserts what comes of them.
	run func(s *stage)
}

func situations() []situation { return slices.Concat(provisioner(), attacher(), resizer()) }

// limit is how long a situation may take.
const limit = 2 * time.Minute

// TestSidecars has each sidecar run into each of its situations, all beside one API
// server, and holds what was seen against docs/callers.md.
func TestSidecars(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane, _ := newPlane(ctx, t)

	all := situations()
	rows := make([]string, len(all))
	t.Run("when", func(t *testing.T) {
		for i, s := range all {
			t.Run(s.caller+": "+s.name, func(t *testing.T) {
				t.Parallel()
				rows[i] = s.play(t, plane)
			})
		}
	})
	checkTable(t, rows)
}
