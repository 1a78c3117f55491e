package model_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"google.golang.org/grpc/codes"
)

// check compares a history with the model and returns what to read if they
// differ: a short part of the history that no order explains.
func (m *model) check(history []*operation) string {
	history = slices.DeleteFunc(slices.Clone(history), hasNoEffect)
	slices.SortFunc(history, func(a, b *operation) int { return cmp.Compare(a.call, b.call) })
	if ok, _ := linearizable(newState(), history, m.step, (*state).key); ok {
		return ""
	}
	short := m.shorten(history)
	_, end := linearizable(newState(), short, m.step, (*state).key)
	var before, next []string
	for i, o := range short {
		line := fmt.Sprintf("%5d-%-5d client %-2d %s", o.call, o.end, o.client, o)
		switch {
		case end.done.has(i):
			before = append(before, line)
		case o.call < end.deadline:
			next = append(next, line)
		}
	}
	const most = 40
	return fmt.Sprintf("no order of the calls of a family has these answers (begin-end). The longest that has:\n%s\nleads to:\n%s\nand these come next, of which one that was not given up cannot:\n%s\n",
		strings.Join(before[max(0, len(before)-most):], "\n"), end.state.key(), strings.Join(next, "\n"))
}

// hasNoEffect says that a call means nothing for the others.
func hasNoEffect(o *operation) bool {
	return o.code == codes.Aborted || o.lost && changesNothing(o.request)
}

// shorten cuts a history that no order explains after the first answer that
// cannot be, and leaves out calls that changed nothing for sure.
func (m *model) shorten(history []*operation) []*operation {
	fails := func(h []*operation) bool {
		ok, _ := linearizable(newState(), h, m.step, (*state).key)
		return !ok
	}
	ends := make([]int64, 0, len(history))
	for _, o := range history {
		ends = append(ends, o.end)
	}
	slices.Sort(ends)
	// With more answers, a history that cannot be stays so.
	at := sort.Search(len(ends), func(i int) bool { return fails(until(history, ends[i])) })
	short := until(history, ends[min(at, len(ends)-1)])
	for i := len(short) - 1; i >= 0; i-- {
		if !short[i].harmless {
			continue
		}
		if without := slices.Delete(slices.Clone(short), i, i+1); fails(without) {
			short = without
		}
	}
	return short
}

// until is what was known of a history at a time.
func until(history []*operation, now int64) (out []*operation) {
	for _, o := range history {
		switch {
		case o.call > now:
		case o.end > now:
			pending := *o
			pending.lost, pending.harmless, pending.reply = true, false, nil
			out = append(out, &pending)
		default:
			out = append(out, o)
		}
	}
	return out
}

// method is the name of the call.
func (o *operation) method() string {
	return strings.TrimSuffix(string(o.request.ProtoReflect().Descriptor().Name()), "Request")
}

// String is an operation on one line, in short.
func (o *operation) String() string {
	answer := o.code.String()
	switch {
	case o.lost:
		answer = "given up"
	case o.reply != nil:
		answer = fmt.Sprintf("OK {%v}", o.reply)
	case o.says != "":
		answer += ": " + o.says
	}
	line := strings.Join(strings.Fields(fmt.Sprintf("%s %s {%v} -> %s", o.node, o.method(), o.request, answer)), " ")
	for _, s := range shorter {
		line = s.long.ReplaceAllString(line, s.short)
	}
	return line
}

// shorter are what a reader of operations can do without: directories, most of an
// id, and what is around the few things that differ.
var shorter = []struct {
	long  *regexp.Regexp
	short string
}{
	{regexp.MustCompile(`/[^" ]*/`), ""},
	{regexp.MustCompile(`((?:vol|snap|csiemu)-[0-9a-f]{4})[0-9a-f]{20}`), "$1"},
	{regexp.MustCompile(` ?publish_context:{key:"csiemu.dev/(size|volume|boot|device)" value:"[^"]*"}`), ""},
	{regexp.MustCompile(`publish_context:{key:"csiemu.dev/(attachment|readonly)" value:"([^"]*)"}`), "$1:$2"},
	{regexp.MustCompile(`volume_capabilit(?:y|ies):{mount:{} access_mode:{mode:([A-Z_]+)}}`), "$1"},
	{regexp.MustCompile(` ?creation_time:{[^}]*}`), ""},
}

// unexplained returns calls that were answered ABORTED though no other call for
// their family was under way.
func unexplained(history []*operation) (out []*operation) {
	for i, o := range history {
		if o.code != codes.Aborted {
			continue
		}
		overlaps := slices.ContainsFunc(history, func(other *operation) bool {
			return other != history[i] && other.call < o.end && o.call < other.end
		})
		if !overlaps {
			out = append(out, o)
		}
	}
	return out
}
