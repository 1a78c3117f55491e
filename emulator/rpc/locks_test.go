package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// stage is a server whose methods wait until they are told to end.
type stage struct {
	t     *testing.T
	conn  *grpc.ClientConn
	locks *rpc.Locks
	began chan *performance
	// arrived has one element for each call that has come to the locks, ended
	// for each that has left the chain.
	arrived chan struct{}
	ended   chan error
}

type performance struct {
	request proto.Message
	end     chan error
}

func newStage(t *testing.T, o rpc.Options) *stage {
	s := &stage{t: t, locks: rpc.NewLocks(), began: make(chan *performance), ended: make(chan error, 100), arrived: make(chan struct{}, 100)}
	o.Locks = s.locks
	o.Around = append(o.Around, func(ctx context.Context, c *rpc.Call) error {
		err := c.Next(ctx)
		s.ended <- err
		return err
	})
	o.Checked = append(o.Checked, func(ctx context.Context, c *rpc.Call) error {
		s.arrived <- struct{}{}
		return c.Next(ctx)
	})
	o.Locked = []rpc.Step{answer(func(ctx context.Context, c *rpc.Call) error {
		p := &performance{request: c.Request, end: make(chan error)}
		select {
		case s.began <- p:
		case <-t.Context().Done():
			return errors.New("the test is over")
		}
		// As a real method would, it ends when it has ended, whatever the
		// caller does meanwhile.
		err := <-p.end
		if err != nil && err.Error() == "panic" {
			panic("on stage")
		}
		return err
	})}
	s.conn = serve(t, o)
	return s
}

// start starts a call; its error comes over the channel.
func (s *stage) start(ctx context.Context, request proto.Message) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call(ctx, s.conn, request) }()
	return done
}

// begins waits until a method runs, which must be that of the request.
func (s *stage) begins(request proto.Message) *performance {
	s.t.Helper()
	select {
	case p := <-s.began:
		<-s.arrived
		require.True(s.t, proto.Equal(request, p.request), "want %v, got %v", request, p.request)
		return p
	case <-s.t.Context().Done():
		s.t.Fatal("no method began")
		return nil
	}
}

// run starts a call and waits until its method runs.
func (s *stage) run(request proto.Message) (*performance, <-chan error) {
	s.t.Helper()
	done := s.start(s.t.Context(), request)
	return s.begins(request), done
}

// requireQueues makes sure that a call waits for another, and ends its wait.
func (s *stage) requireQueues(request proto.Message) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	done := s.start(ctx, request)
	<-s.arrived
	select {
	case <-s.began:
		require.FailNow(s.t, "the method ran")
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	require.Equal(s.t, codes.Canceled, status.Code(<-done))
	require.Equal(s.t, codes.Aborted, status.Code(<-s.ended), "it had no effect, and the log says so")
}

func requireAborted(t *testing.T, err error, says string) {
	t.Helper()
	require.Equal(t, codes.Aborted, status.Code(err), "%v", err)
	require.Contains(t, status.Convert(err).Message(), says)
}

func (s *stage) idle() {
	s.t.Helper()
	require.Eventually(s.t, s.locks.Idle, patience, time.Millisecond)
}

func publishAt(vol, node string) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{VolumeId: vol, NodeId: node, VolumeCapability: capability()}
}

func restore(name, snap string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: capabilities(),
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snap},
		}},
	}
}

func clone(name, source string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: capabilities(),
		VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source},
		}},
	}
}

func snap(vol, name string) *csi.CreateSnapshotRequest {
	return &csi.CreateSnapshotRequest{SourceVolumeId: vol, Name: name}
}

func stageVolume(vol, path string) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{VolumeId: vol, StagingTargetPath: path, VolumeCapability: capability()}
}

func publishVolume(vol, path string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: vol, TargetPath: path, VolumeCapability: capability()}
}

// lockCases are pairs of calls: what happens to the second while the first is
// under way.
var lockCases = []struct {
	name          string
	first, second proto.Message
	// does is "aborts", "queues" or "runs"; says is in the message of ABORTED.
	does, says string
}{
	{"the same publish", publishAt("v", "a"), publishAt("v", "a"), "aborts", `ControllerPublishVolume: an operation for volume "v" is under way`},
	{"publish at another node", publishAt("v", "a"), publishAt("v", "b"), "queues", ""},
	{"publish of another volume", publishAt("v", "a"), publishAt("w", "a"), "runs", ""},
	{"unpublish while publish", publishAt("v", "a"), &csi.ControllerUnpublishVolumeRequest{VolumeId: "v", NodeId: "a"}, "queues", ""},
	{
		"the same unpublish from all nodes", &csi.ControllerUnpublishVolumeRequest{VolumeId: "v"},
		&csi.ControllerUnpublishVolumeRequest{VolumeId: "v"}, "aborts", `volume "v"`,
	},
	{
		"the same create with other parameters", &csi.CreateVolumeRequest{Name: "pvc", VolumeCapabilities: capabilities()},
		&csi.CreateVolumeRequest{Name: "pvc", VolumeCapabilities: capabilities(), Parameters: map[string]string{"a": "b"}},
		"aborts", `volume name "pvc"`,
	},
	{"create of another name", restore("one", "s"), &csi.CreateVolumeRequest{Name: "two", VolumeCapabilities: capabilities()}, "runs", ""},
	{"two restores of a snapshot", restore("one", "s"), restore("two", "s"), "runs", ""},
	{"delete of a snapshot that is restored", restore("one", "s"), &csi.DeleteSnapshotRequest{SnapshotId: "s"}, "queues", ""},
	{"restore of a snapshot that is deleted", &csi.DeleteSnapshotRequest{SnapshotId: "s"}, restore("one", "s"), "queues", ""},
	{"two clones of a volume", clone("one", "v"), clone("two", "v"), "runs", ""},
	{"delete of a volume that is cloned", clone("one", "v"), &csi.DeleteVolumeRequest{VolumeId: "v"}, "queues", ""},
	{"clone into the name of its source", clone("volume", "volume"), &csi.DeleteVolumeRequest{VolumeId: "other"}, "runs", ""},
	{"the same snapshot", snap("v", "s"), snap("v", "s"), "aborts", `snapshot name "s"`},
	{"two snapshots of a volume", snap("v", "s"), snap("v", "t"), "queues", ""},
	{"snapshots of two volumes", snap("v", "s"), snap("w", "t"), "runs", ""},
	{"expansion of a volume that is cut", snap("v", "s"), &csi.ControllerExpandVolumeRequest{
		VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1},
	}, "queues", ""},
	{
		"group snapshot with a volume that is published",
		publishAt("v", "a"), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"x", "v"}}, "queues", "",
	},
	{
		"group deletion with a snapshot that is restored",
		restore("one", "s"), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: []string{"s"}}, "queues", "",
	},
	{
		"group snapshot that names a volume twice", &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"x", "x"}},
		&csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{"y"}}, "aborts", `group snapshot name "g"`,
	},
	{"the same stage", stageVolume("v", "/s"), stageVolume("v", "/s"), "aborts", `volume "v"`},
	{"stage at another path", stageVolume("v", "/s"), stageVolume("v", "/t"), "queues", ""},
	{"the same node publish", publishVolume("v", "/p"), publishVolume("v", "/p"), "aborts", ""},
	{"node publish at another target", publishVolume("v", "/p"), publishVolume("v", "/q"), "queues", ""},
	{"node unpublish while publish", publishVolume("v", "/p"), &csi.NodeUnpublishVolumeRequest{VolumeId: "v", TargetPath: "/p"}, "queues", ""},
	{"node expansion while publish", publishVolume("v", "/p"), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: "/p"}, "queues", ""},
	{"stats while publish", publishVolume("v", "/p"), &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/p"}, "runs", ""},
	{"stats twice", &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/p"}, &csi.NodeGetVolumeStatsRequest{VolumeId: "v", VolumePath: "/p"}, "runs", ""},
	{"validation while delete", &csi.DeleteVolumeRequest{VolumeId: "v"}, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "v", VolumeCapabilities: capabilities()}, "runs", ""},
	{"list while delete", &csi.DeleteVolumeRequest{VolumeId: "v"}, &csi.ListVolumesRequest{}, "runs", ""},
	{"metadata while delete", &csi.DeleteSnapshotRequest{SnapshotId: "s"}, &csi.GetMetadataAllocatedRequest{SnapshotId: "s"}, "runs", ""},
}

func TestLocks(t *testing.T) {
	t.Parallel()
	for _, c := range lockCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, rpc.Options{})
			first, firstDone := s.run(c.first)
			switch c.does {
			case "aborts":
				requireAborted(t, call(t.Context(), s.conn, c.second), c.says)
			case "queues":
				s.requireQueues(c.second)
				done := s.start(t.Context(), c.second)
				close(first.end)
				require.NoError(t, <-firstDone)
				close(s.begins(c.second).end)
				require.NoError(t, ignoreEOF(<-done))
				s.idle()
				return
			case "runs":
				second, done := s.run(c.second)
				close(second.end)
				require.NoError(t, ignoreEOF(<-done))
			}
			close(first.end)
			require.NoError(t, ignoreEOF(<-firstDone))
			s.idle()
		})
	}
}

func TestStrictLocksRefuseAnySecondCall(t *testing.T) {
	t.Parallel()
	for _, c := range lockCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, rpc.Options{StrictLocks: true})
			first, firstDone := s.run(c.first)
			if c.does == "runs" {
				second, done := s.run(c.second)
				close(second.end)
				require.NoError(t, ignoreEOF(<-done))
			} else {
				requireAborted(t, call(t.Context(), s.conn, c.second), "is under way")
			}
			close(first.end)
			require.NoError(t, ignoreEOF(<-firstDone))
			s.idle()
		})
	}
}

// ignoreEOF forgives the end of a stream that sent nothing.
func ignoreEOF(err error) error {
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

// A lock that a failed call keeps is "operation already exists" for ever
// (kubernetes-csi/csi-driver-smb#444).
func TestLocksAreReleasedHoweverACallEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []error{nil, errors.New("failed"), errors.New("panic")} {
		s := newStage(t, rpc.Options{})
		request := snap("v", "s")
		for range 3 {
			p, done := s.run(request)
			p.end <- end
			if end == nil {
				require.NoError(t, <-done)
			} else {
				require.Equal(t, codes.Internal, status.Code(<-done))
			}
			s.idle()
		}
	}
}

func TestLocksAreHeldUntilTheMethodEndsNotTheCaller(t *testing.T) {
	t.Parallel()
	s := newStage(t, rpc.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	done := s.start(ctx, stageVolume("v", "/s"))
	p := s.begins(stageVolume("v", "/s"))
	cancel()
	require.Equal(t, codes.Canceled, status.Code(<-done))
	requireAborted(t, call(t.Context(), s.conn, stageVolume("v", "/s")), "under way")
	close(p.end)
	s.idle()
}

// A call that waits and gives up leaves nothing behind, and does not count as
// under way.
func TestLocksForgetACallThatGaveUpWaiting(t *testing.T) {
	t.Parallel()
	s := newStage(t, rpc.Options{})
	first, done := s.run(publishAt("v", "a"))
	for range 3 {
		s.requireQueues(publishAt("v", "b"))
	}
	close(first.end)
	require.NoError(t, <-done)
	require.Eventually(t, s.locks.Idle, patience, time.Millisecond)
	p, done := s.run(publishAt("v", "b"))
	close(p.end)
	require.NoError(t, <-done)
	s.idle()
}

// Groups that share volumes in another order must not wait for each other in a
// circle.
func TestGroupsLockInOneOrder(t *testing.T) {
	t.Parallel()
	conn := serve(t, rpc.Options{Locked: []rpc.Step{answer(func(context.Context, *rpc.Call) error { return nil })}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error)
	for i := range 8 {
		go func() {
			for round := range 50 {
				ids := []string{"a", "b", "c"}
				if i%2 == 0 {
					ids = []string{"c", "b", "a"}
				}
				name := fmt.Sprintf("group-%d-%d", i, round)
				if err := call(ctx, conn, &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: ids}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
}
