package admin

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/journal"
)

// try is a call with the failed attempts at the same before it.
type try struct {
	*journal.Entry
	// Earlier are the attempts before, oldest first.
	Earlier []*journal.Entry
}

// Attempts is how many there were, those included that are not kept any more.
func (t try) Attempts() int { return max(t.Attempt, len(t.Earlier)+1) }

// tries folds retries: attempts at the same stand together, at the place of the
// last one.
func tries(entries []*journal.Entry) []try {
	folded := make([]try, 0, len(entries))
	// failed is where the last attempt at something stands that failed.
	failed := map[string]int{}
	for _, e := range entries {
		t := try{Entry: e}
		thing := same(e)
		if at, ok := failed[thing]; ok && e.Attempt > 1 {
			t.Earlier = append(slices.Clip(folded[at].Earlier), folded[at].Entry)
			folded[at].Entry = nil
		}
		delete(failed, thing)
		if e.Done && e.Code != codes.OK {
			failed[thing] = len(folded)
		}
		folded = append(folded, t)
	}
	return slices.DeleteFunc(folded, func(t try) bool { return t.Entry == nil })
}

// same names what a call wants: that of its retries is the same.
func same(e *journal.Entry) string {
	thing := e.Volume + "/" + e.Snapshot + "/" + e.Group
	if e.Name != "" {
		thing = "" // a reply adds it
	}
	return strings.Join([]string{e.Method, e.Node, e.Name, thing}, " ")
}

// chatter are calls that orchestrators make all the time and that no test is
// about.
var chatter = []string{
	"GetPluginInfo", "GetPluginCapabilities", "Probe", "NodeGetInfo", "NodeGetCapabilities", "ControllerGetCapabilities",
	"GroupControllerGetCapabilities", "ListVolumes", "ListSnapshots", "GetCapacity", "NodeGetVolumeStats",
}

// asTest is a sequence of calls as Go code that asserts it. Ids are left out, as
// the next run has others; names and nodes stay.
func asTest(all []try) string {
	var b strings.Builder
	for _, t := range all {
		if !t.Done || slices.Contains(chatter, t.Method) {
			continue
		}
		m := journal.Match{Method: t.Method, Fields: map[string]string{"code": journal.CodeName(t.Code)}}
		if t.Node != "" {
			m.Fields["node"] = t.Node
		}
		if t.Name != "" {
			m.Fields["name"] = t.Name
		}
		b.WriteString("\t`" + strings.ReplaceAll(m.String(), "`", "?") + "`,\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return "driver.Journal().Want(t,\n" + b.String() + ")\n"
}
