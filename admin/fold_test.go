package admin

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/journal"
)

// made enters calls about volumes, each with whether it failed.
type made struct {
	volume string
	failed bool
}

func entriesOf(calls ...made) []*journal.Entry {
	j := journal.New(journal.Options{})
	for _, c := range calls {
		open := j.Begin("/csi.v1.Controller/ControllerPublishVolume", "", &csi.ControllerPublishVolumeRequest{VolumeId: c.volume, NodeId: "node-1"})
		var err error
		if c.failed {
			err = status.Error(codes.Unavailable, "later")
		}
		open.End(&csi.ControllerPublishVolumeResponse{}, err)
	}
	return j.Entries(0)
}

func TestRetriesAreFolded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls []made
		// want are the numbers of the calls that stay, earlier how many attempts
		// each has before it.
		want    []uint64
		earlier []int
	}{
		"none":                             {nil, nil, nil},
		"a call that succeeds":             {[]made{{"a", false}}, []uint64{1}, []int{0}},
		"calls that succeed are no retry":  {[]made{{"a", false}, {"a", false}}, []uint64{1, 2}, []int{0, 0}},
		"a retry":                          {[]made{{"a", true}, {"a", true}, {"a", false}}, []uint64{3}, []int{2}},
		"a retry that fails":               {[]made{{"a", true}, {"a", true}}, []uint64{2}, []int{1}},
		"retries of two things interlaced": {[]made{{"a", true}, {"b", true}, {"a", false}, {"b", false}}, []uint64{3, 4}, []int{1, 1}},
		"a new call after success":         {[]made{{"a", true}, {"a", false}, {"a", true}}, []uint64{2, 3}, []int{1, 0}},
	} {
		var seqs []uint64
		var earlier []int
		for _, try := range tries(entriesOf(c.calls...)) {
			seqs, earlier = append(seqs, try.Seq), append(earlier, len(try.Earlier))
		}
		require.Equal(t, c.want, seqs, name)
		require.Equal(t, c.earlier, earlier, name)
	}
}

// A name is what a creation is about, before and after it has an id.
func TestRetriesOfCreationAreFolded(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	request := &csi.CreateVolumeRequest{Name: "v"}
	j.Begin("/csi.v1.Controller/CreateVolume", "", request).End(nil, status.Error(codes.Unavailable, "later"))
	j.Begin("/csi.v1.Controller/CreateVolume", "", request).End(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "vol-1"}}, nil)
	folded := tries(j.Entries(0))
	require.Len(t, folded, 1)
	require.Equal(t, 2, folded[0].Attempts())
	require.Equal(t, "driver.Journal().Want(t,\n\t`CreateVolume{code=OK,name=v}`,\n)\n", asTest(folded))
}

func TestNothingToAssert(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	j.Begin("/csi.v1.Identity/Probe", "", &csi.ProbeRequest{}).End(&csi.ProbeResponse{}, nil)
	j.Begin("/csi.v1.Controller/DeleteVolume", "", &csi.DeleteVolumeRequest{VolumeId: "v"})
	require.Empty(t, asTest(tries(j.Entries(0))))
}

func TestTimelineHasLanesAndGaps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	entry := func(seq uint64, after time.Duration, service, method, node, volume string) *journal.Entry {
		return &journal.Entry{
			Seq: seq, Time: begin.Add(after), Method: method, FullMethod: "/csi.v1." + service + "/" + method, Node: node, Volume: volume, Done: true,
		}
	}
	entries := []*journal.Entry{
		entry(1, 0, "Controller", "ControllerPublishVolume", "node-1", "v"),
		entry(2, 100*time.Millisecond, "Node", "NodeStageVolume", "node-1", "v"),
		entry(3, 5*time.Second, "Node", "NodeStageVolume", "gone", "v"),
		entry(4, 6*time.Second, "Controller", "DeleteVolume", "", "another"),
		entry(5, 6*time.Second, "GroupController", "CreateVolumeGroupSnapshot", "", "w,v"),
	}
	line := newTimeline(entries, "v", "", []string{"node-1", "node-2"})
	require.Equal(t, []string{"controller", "node-1", "node-2", "gone"}, line.Lanes)
	var columns []int
	var gaps []time.Duration
	for _, s := range line.Steps {
		columns, gaps = append(columns, s.Column), append(gaps, s.Gap)
	}
	require.Equal(t, []int{1, 2, 4, 1}, columns)
	require.Equal(t, []time.Duration{0, 0, 4900 * time.Millisecond, time.Second}, gaps)
}
