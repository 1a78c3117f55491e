package journal

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// TB is what assertions need of testing.TB, so that other frameworks can have it.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Want asserts that calls matching the texts (ParseMatch) were made in this order.
// Other calls may lie between them. A call and its retries count as one, the last:
// the code that a step asks for is that of the last attempt.
func (j *Journal) Want(t TB, steps ...string) {
	t.Helper()
	entries := collapsed(j.Entries(0))
	from := 0
	for i, text := range steps {
		m := mustParse(t, text)
		at := slices.IndexFunc(entries[from:], m.Matches)
		if at < 0 {
			after := "the start"
			if i > 0 {
				after = entries[from-1].String()
			}
			t.Errorf("step %d of %d: no call of %s after %s%s", i+1, len(steps), m, after, misses(entries[from:], m))
			return
		}
		from += at + 1
	}
}

// Never asserts that no call matched.
func (j *Journal) Never(t TB, text string) {
	t.Helper()
	m := mustParse(t, text)
	for _, e := range j.Entries(0) {
		if m.Matches(e) {
			t.Errorf("there was a call of %s: %s", m, e)
			return
		}
	}
}

// WantCount asserts how many calls that match have ended, retries included.
func (j *Journal) WantCount(t TB, n int, text string) {
	t.Helper()
	m := mustParse(t, text)
	entries := j.Entries(0)
	if found := matching(entries, m); len(found) != n {
		t.Errorf("%d calls of %s, want %d%s", len(found), m, n, listed(found)+misses(entries, m))
	}
}

func mustParse(t TB, text string) Match {
	t.Helper()
	m, err := ParseMatch(text)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return m
}

// collapsed leaves out calls that failed and were tried again later.
func collapsed(entries []*Entry) []*Entry {
	last := map[Subject]int{}
	for i, e := range entries {
		last[e.Subject()] = i
	}
	var kept []*Entry
	for i, e := range entries {
		retried := e.Done && e.Code != codes.OK && last[e.Subject()] > i
		if !retried {
			kept = append(kept, e)
		}
	}
	return kept
}

// listed are calls that were found, one a line.
func listed(found []*Entry) string {
	var b strings.Builder
	for _, e := range found[:min(len(found), mostListed)] {
		fmt.Fprintf(&b, "\n    %s", e)
	}
	return b.String()
}

// mostListed is how many calls that match a failed assertion names.
const mostListed = 10

// mostMisses is how many calls a failed assertion names.
const mostMisses = 3

// misses says which calls came nearest to what was meant, and in what they differ.
func misses(entries []*Entry, m Match) string {
	type miss struct {
		entry       *Entry
		differences []difference
	}
	var near []miss
	for _, e := range entries {
		if d := m.differences(e); len(d) > 0 {
			near = append(near, miss{e, d})
		}
	}
	slices.SortStableFunc(near, func(a, b miss) int { return weight(a.differences) - weight(b.differences) })
	if len(near) > 0 && m.Method != "" && near[0].differences[0].field == "method" {
		near = nil // another method is no near miss where there is a choice
		for _, n := range entries {
			if d := m.differences(n); len(d) > 0 && d[0].field == "method" && len(entries) <= mostMisses {
				near = append(near, miss{n, d})
			}
		}
	}
	if len(near) == 0 {
		return fmt.Sprintf("\n  of %d calls", len(entries))
	}
	var b strings.Builder
	b.WriteString("\n  nearest:")
	for _, n := range near[:min(len(near), mostMisses)] {
		fmt.Fprintf(&b, "\n    %s\n      ", n.entry)
		for i, d := range n.differences {
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(d.String())
		}
	}
	return b.String()
}

// weight orders misses: another method is further away than other fields.
func weight(all []difference) int {
	sum := 0
	for _, d := range all {
		sum++
		if d.field == "method" {
			sum += 100
		}
	}
	return sum
}
