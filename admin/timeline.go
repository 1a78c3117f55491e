package admin

import (
	"slices"
	"strings"
	"time"

	"github.com/csiemu/csiemu/journal"
)

// controllerLane is the name of the lane of the controller's calls.
const controllerLane = "controller"

// timeline is what happened to a volume: a lane for the controller and for each
// node, time downwards.
type timeline struct {
	Lanes []string
	Steps []step
}

// step is a call in its lane.
type step struct {
	try
	// Column is that of its lane, from 1.
	Column int
	// Gap is how long nothing happened before; 0 for less than noticed.
	Gap time.Duration
}

// noticed is the shortest gap that a timeline shows.
const noticed = time.Second

// newTimeline is that of the calls about a volume, by its id, or by its name before
// it had one.
func newTimeline(entries []*journal.Entry, id, name string, nodes []string) timeline {
	about := slices.DeleteFunc(slices.Clone(entries), func(e *journal.Entry) bool {
		return !slices.Contains(strings.Split(e.Volume, ","), id) && (e.Method != "CreateVolume" || e.Name != name)
	})
	t := timeline{Lanes: append([]string{controllerLane}, nodes...)}
	var end time.Time
	for _, call := range tries(about) {
		lane := lane(call.Entry)
		column := slices.Index(t.Lanes, lane)
		if column < 0 {
			column = len(t.Lanes)
			t.Lanes = append(t.Lanes, lane)
		}
		s := step{try: call, Column: column + 1}
		if gap := call.begin().Sub(end); !end.IsZero() && gap >= noticed {
			s.Gap = gap
		}
		end = call.Time.Add(call.Duration)
		t.Steps = append(t.Steps, s)
	}
	return t
}

// begin is when the first of the attempts began.
func (t try) begin() time.Time {
	if len(t.Earlier) > 0 {
		return t.Earlier[0].Time
	}
	return t.Time
}

// lane is where a call was served: a call of the controller may be about a node.
func lane(e *journal.Entry) string {
	if strings.HasPrefix(e.FullMethod, "/csi.v1.Node/") && e.Node != "" {
		return e.Node
	}
	return controllerLane
}
