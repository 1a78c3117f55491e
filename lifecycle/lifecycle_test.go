package lifecycle_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/lifecycle"
)

// caller makes calls that a driver answers as told.
type caller struct {
	t       *testing.T
	journal *journal.Journal
	checker *lifecycle.Checker
	found   []lifecycle.Finding
}

func newCaller(t *testing.T, edit ...func(*lifecycle.Options)) *caller {
	o := lifecycle.Options{
		Attaches: true, Stages: true, Online: true,
		EphemeralKey: "csi.storage.k8s.io/ephemeral", TokensKey: "csi.storage.k8s.io/serviceAccount.tokens",
	}
	for _, f := range edit {
		f(&o)
	}
	return &caller{t: t, journal: journal.New(journal.Options{}), checker: lifecycle.New(o)}
}

func (c *caller) call(method, node string, request, reply proto.Message, code codes.Code) {
	open := c.journal.Begin("/csi.v1.X/"+method, node, request)
	c.found = append(c.found, c.checker.Begin(open.Entry())...)
	if code != codes.OK {
		open.End(nil, status.Error(code, "refused"))
	} else {
		open.End(reply, nil)
	}
	c.checker.End(open.Entry())
}

var volumeContext = map[string]string{"array": "a"}

func publishContext(node string) map[string]string { return map[string]string{"on": node} }

func (c *caller) create() {
	c.call("CreateVolume", "", &csi.CreateVolumeRequest{Name: "v"}, &csi.CreateVolumeResponse{
		Volume: &csi.Volume{VolumeId: "id", VolumeContext: volumeContext, CapacityBytes: 100},
	}, codes.OK)
}

func (c *caller) attach(node string, code codes.Code) {
	c.call("ControllerPublishVolume", "", &csi.ControllerPublishVolumeRequest{
		VolumeId: "id", NodeId: node, VolumeContext: volumeContext,
		VolumeCapability: &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}},
	}, &csi.ControllerPublishVolumeResponse{PublishContext: publishContext(node)}, code)
}

func (c *caller) detach(node string, code codes.Code) {
	c.call("ControllerUnpublishVolume", "", &csi.ControllerUnpublishVolumeRequest{VolumeId: "id", NodeId: node}, &csi.ControllerUnpublishVolumeResponse{}, code)
}

func (c *caller) stage(node string, code codes.Code, edit ...func(*csi.NodeStageVolumeRequest)) {
	r := &csi.NodeStageVolumeRequest{VolumeId: "id", StagingTargetPath: "/s", VolumeContext: volumeContext, PublishContext: publishContext(node)}
	for _, f := range edit {
		f(r)
	}
	c.call("NodeStageVolume", node, r, &csi.NodeStageVolumeResponse{}, code)
}

func (c *caller) unstage(node string) {
	c.call("NodeUnstageVolume", node, &csi.NodeUnstageVolumeRequest{VolumeId: "id", StagingTargetPath: "/s"}, &csi.NodeUnstageVolumeResponse{}, codes.OK)
}

func (c *caller) publish(node string, edit ...func(*csi.NodePublishVolumeRequest)) {
	r := &csi.NodePublishVolumeRequest{VolumeId: "id", StagingTargetPath: "/s", TargetPath: "/t", VolumeContext: volumeContext, PublishContext: publishContext(node)}
	for _, f := range edit {
		f(r)
	}
	c.call("NodePublishVolume", node, r, &csi.NodePublishVolumeResponse{}, codes.OK)
}

func (c *caller) unpublish(node string) {
	c.call("NodeUnpublishVolume", node, &csi.NodeUnpublishVolumeRequest{VolumeId: "id", TargetPath: "/t"}, &csi.NodeUnpublishVolumeResponse{}, codes.OK)
}

func (c *caller) delete() {
	c.call("DeleteVolume", "", &csi.DeleteVolumeRequest{VolumeId: "id"}, &csi.DeleteVolumeResponse{}, codes.OK)
}

func (c *caller) nodeExpand(node string, bytes int64) {
	c.call("NodeExpandVolume", node, &csi.NodeExpandVolumeRequest{VolumeId: "id", VolumePath: "/t", CapacityRange: &csi.CapacityRange{RequiredBytes: bytes}},
		&csi.NodeExpandVolumeResponse{}, codes.OK)
}

func (c *caller) expand(bytes int64) {
	c.call("ControllerExpandVolume", "", &csi.ControllerExpandVolumeRequest{VolumeId: "id"}, &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes}, codes.OK)
}

func TestCallerWithoutFault(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for range 2 {
		c.create()
		c.create()
		c.attach("n1", codes.OK)
		c.stage("n1", codes.OK)
		c.publish("n1", func(r *csi.NodePublishVolumeRequest) {
			r.VolumeContext = maps.Clone(r.VolumeContext)
			r.VolumeContext["csi.storage.k8s.io/pod.name"] = "pod" // podInfoOnMount
		})
		c.expand(200)
		c.nodeExpand("n1", 200)
		c.unpublish("n1")
		c.unstage("n1")
		c.detach("n1", codes.OK)
		c.attach("n2", codes.OK)
		c.detach("n2", codes.OK)
		c.delete()
	}
	require.Empty(t, c.found)
	require.Empty(t, c.checker.Findings())
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		calls func(c *caller)
		// rule is the only one that is broken, earlier the method of the call
		// that it is broken with.
		rule    lifecycle.Rule
		earlier string
	}{
		"stage before attach":             {func(c *caller) { c.create(); c.stage("n1", codes.OK) }, lifecycle.StageBeforeAttach, ""},
		"stage after detach":              {func(c *caller) { c.create(); c.attach("n1", 0); c.detach("n1", 0); c.stage("n1", codes.OK) }, lifecycle.StageBeforeAttach, "ControllerUnpublishVolume"},
		"stage on another node":           {func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n2", codes.OK) }, lifecycle.StageBeforeAttach, ""},
		"publish before stage":            {func(c *caller) { c.create(); c.attach("n1", 0); c.publish("n1") }, lifecycle.PublishBeforeStage, ""},
		"publish after unstage":           {func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n1", 0); c.unstage("n1"); c.publish("n1") }, lifecycle.PublishBeforeStage, "NodeUnstageVolume"},
		"publish before attach":           {func(c *caller) { c.create(); c.publish("n1") }, lifecycle.PublishBeforeAttach, ""},
		"unstage while published":         {func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n1", 0); c.publish("n1"); c.unstage("n1") }, lifecycle.UnstageWhilePublished, "NodePublishVolume"},
		"detach while staged":             {func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n1", 0); c.detach("n1", 0) }, lifecycle.DetachWhileStaged, "NodeStageVolume"},
		"detach from all while published": {func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n1", 0); c.publish("n1"); c.detach("", 0) }, lifecycle.DetachWhilePublished, "NodePublishVolume"},
		"delete while attached":           {func(c *caller) { c.create(); c.attach("n1", 0); c.delete() }, lifecycle.DeleteWhileAttached, "ControllerPublishVolume"},
		"two nodes":                       {func(c *caller) { c.create(); c.attach("n1", 0); c.attach("n2", 0) }, lifecycle.TwoNodes, "ControllerPublishVolume"},
		"volume context lost": {func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.stage("n1", 0, func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = nil })
		}, lifecycle.VolumeContextChanged, "CreateVolume"},
		"volume context changed": {func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.stage("n1", 0, func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"array": "b"} })
		}, lifecycle.VolumeContextChanged, "CreateVolume"},
		"publish context of another node": {func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.stage("n1", 0, func(r *csi.NodeStageVolumeRequest) { r.PublishContext = publishContext("n2") })
		}, lifecycle.PublishContextWrong, "ControllerPublishVolume"},
		"publish context missing": {func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.stage("n1", 0)
			c.publish("n1", func(r *csi.NodePublishVolumeRequest) { r.PublishContext = nil })
		}, lifecycle.PublishContextWrong, "ControllerPublishVolume"},
		"expand on a node that does not have it": {func(c *caller) { c.create(); c.nodeExpand("n1", 0) }, lifecycle.ExpandOrder, ""},
		"node expands before the controller": {func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.stage("n1", 0)
			c.nodeExpand("n1", 200)
		}, lifecycle.ExpandOrder, "CreateVolume"},
		"secrets in parameters": {func(c *caller) {
			c.call("CreateVolume", "", &csi.CreateVolumeRequest{Name: "w", Parameters: map[string]string{"password": "x"}}, nil, codes.OK)
		}, lifecycle.SecretMisplaced, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCaller(t)
			row.calls(c)
			require.Len(t, c.found, 1, "%v", c.found)
			f := c.found[0]
			require.Equal(t, row.rule, f.Rule)
			require.NotEmpty(t, f.Clause())
			require.Contains(t, f.String(), f.Call.Method)
			if row.earlier == "" {
				require.Nil(t, f.Earlier)
			} else {
				require.Equal(t, row.earlier, f.Earlier.Method)
				require.Contains(t, f.String(), f.Earlier.String(), "both calls are quoted")
			}
			require.Equal(t, c.found, c.checker.Findings())
		})
	}
}

func TestOfflineExpansionWhileAttached(t *testing.T) {
	t.Parallel()
	c := newCaller(t, func(o *lifecycle.Options) { o.Online = false })
	c.create()
	c.attach("n1", 0)
	c.expand(200)
	require.Len(t, c.found, 1)
	require.Equal(t, lifecycle.ExpandOrder, c.found[0].Rule)
}

// What a failed call has done, or what was before the first call, nobody knows.
func TestNothingIsSaidOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]func(c *caller){
		"a volume of before":        func(c *caller) { c.stage("n1", 0); c.publish("n1"); c.unpublish("n1"); c.unstage("n1"); c.delete() },
		"an attachment that failed": func(c *caller) { c.create(); c.attach("n1", codes.DeadlineExceeded); c.stage("n1", 0) },
		"a detachment that failed": func(c *caller) {
			c.create()
			c.attach("n1", 0)
			c.detach("n1", codes.DeadlineExceeded)
			c.attach("n2", 0)
		},
		"a stage that failed": func(c *caller) { c.create(); c.attach("n1", 0); c.stage("n1", codes.DeadlineExceeded); c.publish("n1") },
		"an inline volume": func(c *caller) {
			c.publish("n1", func(r *csi.NodePublishVolumeRequest) {
				r.VolumeId, r.VolumeContext = "inline", map[string]string{"csi.storage.k8s.io/ephemeral": "true"}
			})
		},
		"service account tokens": func(c *caller) {
			c.publish("n1", func(r *csi.NodePublishVolumeRequest) {
				r.VolumeContext = map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": "x"}
			})
		},
	} {
		c := newCaller(t)
		calls(c)
		require.Empty(t, c.found, name)
	}
}

// "Timeouts" leaves it to the caller how long it waits after its own deadline; the
// back-off begins with an answer that asks for one.
func TestCallerMayRepeatAtOnceWhatItGaveUp(t *testing.T) {
	t.Parallel()
	for _, gaveUp := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			c := newCaller(t)
			c.create()
			for range 3 {
				c.attach("n1", gaveUp)
			}
			c.attach("n1", codes.Aborted)
			require.Empty(t, c.found, gaveUp)
			c.attach("n1", gaveUp)
			require.Len(t, c.found, 1, gaveUp)
			require.Equal(t, lifecycle.RetryTooSoon, c.found[0].Rule)
			require.Equal(t, codes.Aborted, c.found[0].Earlier.Code)
		})
	}
}

func TestRetriesHaveToBackOff(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		waits []time.Duration
		found int
	}{
		"exponentially":         {[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, 0},
		"with jitter":           {[]time.Duration{100 * time.Millisecond, 60 * time.Millisecond, 400 * time.Millisecond}, 0},
		"always at the longest": {[]time.Duration{5 * time.Minute, time.Minute, time.Minute}, 0},
		"not at all":            {[]time.Duration{0, 0}, 2},
		"shorter and shorter":   {[]time.Duration{900 * time.Millisecond, 400 * time.Millisecond}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCaller(t)
				c.create()
				c.attach("n1", codes.Unavailable)
				for _, wait := range row.waits {
					time.Sleep(wait) //nolint:forbidigo // the clock of the bubble
					c.attach("n1", codes.Unavailable)
				}
				require.Len(t, c.found, row.found, "%v", c.found)
				for _, f := range c.found {
					require.Equal(t, lifecycle.RetryTooSoon, f.Rule)
				}
			})
		})
	}
}
