package csitest_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/csitest"
)

// printer is a TB that keeps what it is told.
type printer struct {
	failed   bool
	skipped  bool
	text     strings.Builder
	cleanups []func()
}

func (*printer) Helper() {}

func (p *printer) Logf(f string, a ...any) { fmt.Fprintf(&p.text, f+"\n", a...) }

func (p *printer) Errorf(f string, a ...any) {
	p.failed = true
	p.Logf(f, a...)
}

func (p *printer) Fatalf(f string, a ...any) {
	p.Errorf(f, a...)
	runtime.Goexit()
}

func (p *printer) Skipf(f string, a ...any) {
	p.skipped = true
	p.Logf(f, a...)
	runtime.Goexit()
}

func (p *printer) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }
func (p *printer) Failed() bool     { return p.failed }
func (*printer) Name() string       { return "TestUnderTest" }

func (p *printer) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}

// run runs a test of somebody else to its end and returns what it said.
func run(test func(tb *printer)) *printer {
	p := &printer{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(p)
	}()
	<-done
	p.end()
	return p
}

func mountCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

// life walks a volume up to its publication on the first node.
func life(t testing.TB, d *csitest.Double, dir string) (id string) {
	t.Helper()
	request := &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability()}, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20},
	}
	made, err := d.Controller().CreateVolume(t.Context(), request)
	require.NoError(t, err)
	v, n := made.GetVolume(), d.Nodes()[0]
	attached, err := d.Controller().ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: n.Name, VolumeCapability: mountCapability()})
	if status.Code(err) != codes.Unimplemented {
		require.NoError(t, err)
	}
	staging, target := dir+"/staging", dir+"/target"
	require.NoError(t, os.MkdirAll(staging, 0o700))
	_, err = n.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, VolumeCapability: mountCapability(), PublishContext: attached.GetPublishContext()})
	require.NoError(t, err)
	_, err = n.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, TargetPath: target, VolumeCapability: mountCapability(), PublishContext: attached.GetPublishContext()})
	require.NoError(t, err)
	return v.GetVolumeId()
}

func TestDoubleEndsWithItsTest(t *testing.T) {
	t.Parallel()
	for name, options := range tiers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := run(func(tb *printer) {
				d := csitest.New(tb, options...)
				id := life(t, d, dir)
				require.Equal(t, id, d.Volumes()[0].ID)
				require.Equal(t, []string{"node-1"}, d.Volume(id).Get().Nodes)
				require.Len(t, d.Attachments(), 1)
				require.Len(t, d.Mounts(), 2)
			})
			require.False(t, p.failed, p.text.String())
			require.NoDirExists(t, dir+"/target", "what was published is taken away")
		})
	}
}

func TestBrokenLifecycleFailsTheTest(t *testing.T) {
	t.Parallel()
	stageFirst := func(options ...csitest.Option) *printer {
		return run(func(tb *printer) {
			d := csitest.New(tb, options...)
			made, err := d.Controller().CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability()}})
			require.NoError(t, err)
			_, _ = d.Nodes()[0].NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{
				VolumeId: made.GetVolume().GetVolumeId(), StagingTargetPath: "/nowhere", VolumeCapability: mountCapability(),
			})
		})
	}
	p := stageFirst()
	require.True(t, p.failed)
	require.Contains(t, p.text.String(), "stage-before-attach")
	require.Contains(t, p.text.String(), "clause:  NodeStageVolume")
	require.Contains(t, p.text.String(), "the last 2 of 2 calls of TestUnderTest:\n  #1 CreateVolume name=v")
	require.False(t, stageFirst(csitest.Lenient()).failed)
}

func TestFaultThatCannotBeFailsTheTest(t *testing.T) {
	t.Parallel()
	p := run(func(tb *printer) { csitest.New(tb).Inject("CreateVolume: explode") })
	require.True(t, p.failed)
	require.Contains(t, p.text.String(), `"explode" is none of`)
	p = run(func(tb *printer) { csitest.New(tb, csitest.Faults("nonsense")) })
	require.True(t, p.failed)
	p = run(func(tb *printer) { csitest.New(tb).Node("nobody") })
	require.Contains(t, p.text.String(), "csitest.Nodes")
}

func TestCrashDoesNotEndTheTest(t *testing.T) {
	t.Parallel()
	p := run(func(tb *printer) {
		d := csitest.New(tb, csitest.Faults("CreateVolume: crash(array.volume.creating)"))
		_, _ = d.Controller().CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability()}})
	})
	require.Contains(t, p.text.String(), "use partial(array.volume.creating)")
}

func TestEndpointIsASocketOfTheSameDriver(t *testing.T) {
	t.Parallel()
	d := csitest.New(t, csitest.Nodes("a", "b"))
	for i, n := range d.Nodes() {
		require.Equal(t, n.Endpoint(), n.Endpoint())
		conn, err := grpc.NewClient(n.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		info, err := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}[i], info.GetNodeId())
	}
	require.Equal(t, d.Endpoint(), d.Node("a").Endpoint())
	require.Less(t, len(d.Endpoint()), 90, "short enough for sun_path")
}

func TestEndpointInABubbleSaysWhyNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := run(func(tb *printer) { csitest.New(tb).Endpoint() })
		require.True(t, p.failed)
		require.Contains(t, p.text.String(), "bubble of testing/synctest")
	})
}

func TestDoubleInABubbleHasItsClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := csitest.New(t, csitest.Faults("CreateVolume: sleep(11m)"))
		began := time.Now()
		_, err := d.Controller().CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability()}})
		require.NoError(t, err)
		require.Equal(t, 11*time.Minute, time.Since(began))
	})
}

func TestProfileOfTheDouble(t *testing.T) {
	t.Parallel()
	d := csitest.New(t, csitest.DriverName("x.example.com"), csitest.Without("EXPAND_VOLUME"), csitest.Strict())
	_, err := d.Controller().ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	info, err := d.Identity().GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	require.NoError(t, err)
	require.Equal(t, "x.example.com", info.GetName())
}
