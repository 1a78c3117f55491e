package journal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal"
)

// call enters a call that ends at once.
func call(j *journal.Journal, method, node string, request, reply proto.Message, err error) {
	j.Begin("/csi.v1.Service/"+method, node, request).End(reply, err)
}

func create(j *journal.Journal, name, id string, err error) {
	call(j, "CreateVolume", "", &csi.CreateVolumeRequest{Name: name, Parameters: map[string]string{"pool": "fast"}},
		&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id}}, err)
}

func attach(j *journal.Journal, id, node string, err error) {
	call(j, "ControllerPublishVolume", "", &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node}, &csi.ControllerPublishVolumeResponse{}, err)
}

func unavailable() error { return status.Error(codes.Unavailable, "come back later") }

func TestEntriesAreKeptInABoundedRing(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{Capacity: 3})
	require.Empty(t, j.Entries(0))
	for i := range 5 {
		create(j, fmt.Sprint("v", i), fmt.Sprint("id-", i), nil)
	}
	require.EqualValues(t, 2, j.Dropped())
	var names []string
	for _, e := range j.Entries(0) {
		names = append(names, e.Name)
	}
	require.Equal(t, []string{"v2", "v3", "v4"}, names)
	require.Len(t, j.Entries(4), 1)
	j.Clear()
	require.Empty(t, j.Entries(0))
	create(j, "after", "id", nil)
	require.EqualValues(t, 6, j.Entries(0)[0].Seq, "numbers go on")
}

func TestEntryTellsWhatACallWasAbout(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	open := j.Begin("/csi.v1.Controller/CreateVolume", "", &csi.CreateVolumeRequest{Name: "v"})
	e := j.Entries(0)[0]
	require.False(t, e.Done, "a call under way is seen")
	require.Contains(t, e.String(), "under way")
	open.Fault("sleep(1s)")
	open.End(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "id"}}, nil)
	require.False(t, e.Done, "an entry is not changed")
	e = j.Entries(0)[0]
	require.True(t, e.Done)
	require.Equal(t, "CreateVolume", e.Method)
	require.Equal(t, "v", e.Name)
	require.Equal(t, "id", e.Volume)
	require.Equal(t, "sleep(1s)", e.Fault)
	require.Equal(t, "id", e.Reply.(*csi.CreateVolumeResponse).GetVolume().GetVolumeId())
}

func TestEntriesBehindTheLastAreNone(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	create(j, "v", "id", nil)
	for _, after := range []uint64{1, 2, math.MaxUint64} {
		require.Empty(t, j.Entries(after))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range j.Follow(ctx, after) {
			require.Fail(t, "there is nothing to follow")
		}
	}
}

func TestAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{Capacity: 4})
	attach(j, "a", "n1", unavailable())
	attach(j, "b", "n1", unavailable())
	attach(j, "a", "n1", unavailable())
	attach(j, "a", "n1", nil)
	attach(j, "a", "n1", nil)
	var attempts []int
	for _, e := range j.Entries(0) {
		attempts = append(attempts, e.Attempt)
	}
	require.Equal(t, []int{1, 2, 3, 1}, attempts)
}

func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	j := journal.New(journal.Options{Lines: &lines})
	const secret = "correct horse"
	request := &csi.NodePublishVolumeRequest{
		VolumeId: "v", Secrets: map[string]string{"k": secret},
		VolumeContext: map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": secret, "plain": "seen"},
	}
	call(j, "NodePublishVolume", "n1", request, &csi.NodePublishVolumeResponse{}, nil)
	e := j.Entries(0)[0]
	text, err := json.Marshal(e)
	require.NoError(t, err)
	for _, shown := range []string{string(text), lines.String(), fmt.Sprint(e.Request), e.String()} {
		require.NotContains(t, shown, secret)
	}
	require.Contains(t, string(text), "seen")
	require.Equal(t, secret, request.GetSecrets()["k"], "the caller's message is left alone")
}

func TestEntrySurvivesJSON(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	j := journal.New(journal.Options{Lines: &lines})
	j.Begin("/csi.v1.Controller/CreateVolume", "", &csi.CreateVolumeRequest{Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 5}}).
		End(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "id"}}, nil)
	j.Begin("/csi.v1.Node/NodeGetInfo", "n1", &csi.NodeGetInfoRequest{}).End(nil, unavailable())
	decoder := json.NewDecoder(&lines)
	for _, want := range j.Entries(0) {
		var got journal.Entry
		require.NoError(t, decoder.Decode(&got))
		require.True(t, proto.Equal(want.Request, got.Request))
		if want.Reply != nil {
			require.True(t, proto.Equal(want.Reply, got.Reply))
		}
		require.Equal(t, want.String(), got.String())
	}
	require.NoError(t, j.Err())
}

// broken is a full disk.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestJournalGoesOnWhenItsFileCannotBeWritten(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{Lines: broken{}})
	create(j, "v", "id", nil)
	require.ErrorContains(t, j.Err(), "disk full")
	require.Len(t, j.Entries(0), 1)
}

func TestWaitReturnsWhenCallsHaveEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(journal.Options{})
		m, err := journal.ParseMatch("ControllerPublishVolume{volume=v}")
		require.NoError(t, err)
		go func() {
			for range 3 {
				time.Sleep(time.Minute) //nolint:forbidigo // the clock of the bubble
				attach(j, "v", "n1", unavailable())
				create(j, "x", "x", nil)
			}
		}()
		began := time.Now()
		found, err := j.Wait(t.Context(), m, 2)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Equal(t, 2*time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = j.Wait(ctx, m, 9)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "9 calls of ControllerPublishVolume{volume=v}, 3 have ended")
	})
}

func TestFollowYieldsCallsAsTheyEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journal.New(journal.Options{})
		create(j, "before", "1", nil)
		slow := j.Begin("/csi.v1.Controller/CreateVolume", "", &csi.CreateVolumeRequest{Name: "slow"})
		ctx, cancel := context.WithCancel(t.Context())
		var names []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range j.Follow(ctx, 0) {
				names = append(names, e.Name)
			}
		}()
		synctest.Wait()
		create(j, "after", "2", nil)
		synctest.Wait()
		slow.End(nil, nil)
		synctest.Wait()
		cancel()
		<-done
		require.Equal(t, []string{"before", "after", "slow"}, names)
	})
}

// recorder is a TB that keeps what it is told.
type recorder struct{ text strings.Builder }

func (*recorder) Helper()                     {}
func (r *recorder) Errorf(f string, a ...any) { fmt.Fprintf(&r.text, f, a...) }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); panic(r) }

func TestAssertions(t *testing.T) {
	t.Parallel()
	j := journal.New(journal.Options{})
	create(j, "v", "id", nil)
	attach(j, "id", "n1", unavailable())
	attach(j, "id", "n1", unavailable())
	attach(j, "id", "n1", nil)
	call(j, "NodeStageVolume", "n1", &csi.NodeStageVolumeRequest{VolumeId: "id"}, nil, nil)

	for name, row := range map[string]struct {
		assert func(journal.TB)
		// want are parts of the failure; none means that it holds.
		want []string
	}{
		"the sequence": {assert: func(t journal.TB) {
			j.Want(t, "CreateVolume{volume=v,param.pool=fast}", "ControllerPublishVolume{code=OK}", "Node*{node=n1}")
		}},
		"retries are one call": {func(t journal.TB) { j.Want(t, "ControllerPublishVolume{code=UNAVAILABLE}") }, []string{
			`step 1 of 1: no call of ControllerPublishVolume{code=UNAVAILABLE} after the start`, `code is "OK", want "UNAVAILABLE"`,
		}},
		"another order": {func(t journal.TB) { j.Want(t, "NodeStageVolume", "CreateVolume") }, []string{"step 2 of 2", "after #5 NodeStageVolume"}},
		"the nearest miss comes first": {func(t journal.TB) { j.Want(t, "NodeStageVolume{node=n2,volume=id}") }, []string{
			"nearest:\n    #5 NodeStageVolume", `node is "n1", want "n2"`,
		}},
		"never":              {assert: func(t journal.TB) { j.Never(t, "DeleteVolume") }},
		"never but it was":   {func(t journal.TB) { j.Never(t, "*{volume=i?}") }, []string{"there was a call"}},
		"a count":            {assert: func(t journal.TB) { j.WantCount(t, 3, "ControllerPublishVolume") }},
		"another count":      {func(t journal.TB) { j.WantCount(t, 2, "ControllerPublishVolume") }, []string{"3 calls of ControllerPublishVolume, want 2"}},
		"the request's node": {assert: func(t journal.TB) { j.WantCount(t, 1, "ControllerPublishVolume{request.node_id=n1,code=OK}") }},
	} {
		r := &recorder{}
		row.assert(r)
		if len(row.want) == 0 {
			require.Empty(t, r.text.String(), name)
		}
		for _, part := range row.want {
			require.Contains(t, r.text.String(), part, name)
		}
	}
	r := &recorder{}
	require.Panics(t, func() { j.Never(r, "Frobnicate") })
	require.Contains(t, r.text.String(), `CSI has no RPC "Frobnicate"`)
}
