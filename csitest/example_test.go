package csitest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/csitest"
)

// attacher is the code under test: it attaches, and tries again with a back-off
// until it has worked.
func attacher(ctx context.Context, driver csi.ControllerClient, request *csi.ControllerPublishVolumeRequest) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		_, err := driver.ControllerPublishVolume(call, request)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// TestAttachThatTakesElevenMinutes is what a test of an attacher looks like. The
// attach hangs, every call of the attacher times out, and after eleven minutes the
// storage comes round. In a bubble of testing/synctest that takes no time.
func TestAttachThatTakesElevenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := csitest.New(t)
		fault := d.Inject("ControllerPublishVolume: hang")
		time.AfterFunc(11*time.Minute, func() { d.Release(fault) })

		volume := createVolume(t, d)
		if err := attacher(t.Context(), d.Controller(), volume); err != nil {
			t.Fatal(err)
		}
		d.Journal().Want(t, "CreateVolume", "ControllerPublishVolume{code=OK}")
	})
}

func createVolume(t *testing.T, d *csitest.Double) *csi.ControllerPublishVolumeRequest {
	t.Helper()
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	made, err := d.Controller().CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "data", VolumeCapabilities: []*csi.VolumeCapability{capability}})
	if err != nil {
		t.Fatal(err)
	}
	return &csi.ControllerPublishVolumeRequest{VolumeId: made.GetVolume().GetVolumeId(), NodeId: d.Nodes()[0].Name, VolumeCapability: capability}
}

// Ginkgo's GinkgoT() is a csitest.TB as well; anything that has the methods will do.
func ExampleNew() {
	tb := &printer{}
	d := csitest.New(tb, csitest.DriverName("fast.example.com"), csitest.Nodes("a", "b"))
	info, err := d.Identity().GetPluginInfo(context.Background(), &csi.GetPluginInfoRequest{})
	fmt.Println(info.GetName(), err)
	d.Inject("DeleteVolume: return(INTERNAL)")
	_, err = d.Controller().DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: "v"})
	fmt.Println(err != nil)
	d.Journal().Want(tb, "DeleteVolume{volume=v,code=INTERNAL}")
	tb.end()
	// Output:
	// fast.example.com <nil>
	// true
}
