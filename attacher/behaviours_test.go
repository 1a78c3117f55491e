package attacher_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/csitest"
)

// What a call of the driver has is the same for both kinds of sources, in an attach
// and in a detach.
func TestSources(t *testing.T) {
	t.Parallel()
	for kind, make := range map[string]func(f *fixture, edit func(*corev1.PersistentVolume)) *storagev1.VolumeAttachment{
		"PersistentVolume": func(f *fixture, edit func(*corev1.PersistentVolume)) *storagev1.VolumeAttachment {
			f.server.Put(put(pvOf(pvName, f.handle), edit))
			return vaOf(vaName, pvName)
		},
		"inline": func(f *fixture, edit func(*corev1.PersistentVolume)) *storagev1.VolumeAttachment {
			spec := put(pvOf("", f.handle), edit).Spec
			return put(inlineVA(f.handle), func(va *storagev1.VolumeAttachment) { va.Spec.Source.InlineVolumeSpec = &spec })
		},
	} {
		for name, test := range map[string]struct {
			edit    func(*corev1.PersistentVolume)
			secrets map[string]string
			want    string
		}{
			"readonly":      {edit: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }, want: "request.readonly=true"},
			"not readonly":  {edit: func(*corev1.PersistentVolume) {}, want: "request.readonly=false"},
			"attributes":    {edit: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes = map[string]string{"array": "one"} }, want: "context.array=one"},
			"secrets":       {edit: withSecret, secrets: map[string]string{"user": "u"}, want: "code=OK"},
			"empty secrets": {edit: withSecret, want: "code=OK"},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				run(t, func(f *fixture) {
					f.server.Put(secretOf(test.secrets))
					f.server.Put(make(f, test.edit))
					f.start()
					f.attached()
					f.double.Journal().Want(f, "ControllerPublishVolume{"+test.want+"}")
					require.Len(f, f.secretsOf("ControllerPublishVolume"), len(test.secrets))
					f.server.Delete("volumeattachments", "", vaName)
					f.settle()
					require.True(f, f.gone())
					require.Len(f, f.secretsOf("ControllerUnpublishVolume"), len(test.secrets))
				})
			})
		}
	}
}

// What ends the wait of a failed attach, and what does not.
func TestChangesThatEndTheBackOff(t *testing.T) {
	t.Parallel()
	metadata := func(edit func(m map[string]any)) func(*fixture) {
		return func(f *fixture) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) { edit(va["metadata"].(map[string]any)) })
		}
	}
	status := func(key, message string) func(*fixture) {
		return func(f *fixture) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
				va["status"].(map[string]any)[key] = map[string]any{"message": message, "time": "2026-01-01T00:00:00Z"}
			})
		}
	}
	for name, test := range map[string]struct {
		change func(f *fixture)
		ends   bool
	}{
		"a changed spec": {ends: true, change: func(f *fixture) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
				va["spec"].(map[string]any)["source"] = map[string]any{"persistentVolumeName": "other"}
			})
		}},
		"a changed annotation":  {metadata(func(m map[string]any) { m["annotations"].(map[string]any)["a"] = "b" }), true},
		"a new label":           {metadata(func(m map[string]any) { m["labels"] = map[string]any{"a": "b"} }), true},
		"the periodic sync":     {func(f *fixture) { f.pass(10 * time.Minute) }, true},
		"a changed attachError": {status("attachError", "another"), false},
		"a detachError":         {status("detachError", "some"), false},
		"a changed detachError": {func(f *fixture) { status("detachError", "some")(f); f.settle(); status("detachError", "another")(f) }, false},
		"more of the managedFields": {metadata(func(m map[string]any) {
			m["managedFields"] = []any{map[string]any{"manager": "m", "operation": "Update"}}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.config.RetryStart, f.config.RetryMax, f.config.Resync = time.Hour, time.Hour, 10*time.Minute
				f.server.Put(pvOf("other", f.handle))
				f.double.Inject("ControllerPublishVolume: 1*return(INTERNAL)->ok")
				f.server.Put(vaOf(vaName, pvName))
				f.start()
				require.NotNil(f, f.va().Status.AttachError)
				test.change(f)
				f.settle()
				require.Equal(f, test.ends, f.va().Status.Attached)
			}, csitest.Lenient()) // who touches it wants no back-off
		})
	}
}

// No cache that is late makes errors at the start.
func TestAllCachesAreAwaited(t *testing.T) {
	t.Parallel()
	for _, late := range []string{"csinodes", "persistentvolumes", "volumeattachments"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.config.Status = new(attacher.Status)
				f.server.Put(vaOf(vaName, pvName))
				f.server.Hold(late)
				f.start()
				f.pass(time.Second)
				require.Error(f, f.config.Status.Ready())
				require.Empty(f, f.writes())
				f.server.Release(late)
				f.settle()
				f.attached()
				require.Equal(f, attachWrites, f.writes())
			})
		})
	}
}

// Others change what is on a VolumeAttachment while the driver is called: nothing
// fails, and nothing is called again.
func TestVolumeAttachmentsThatOthersChangeMeanwhile(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.server.Put(vaOf(vaName, pvName))
		f.double.Inject("ControllerPublishVolume: sleep(1s)")
		f.double.Inject("ControllerUnpublishVolume: sleep(1s)")
		edit := func(finalizers ...any) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
				m := va["metadata"].(map[string]any)
				m["finalizers"] = finalizers
			})
		}
		f.start()
		f.server.Hold("volumeattachments")
		edit("other/one", finalizer)
		f.pass(2 * time.Second)
		f.attached()
		f.server.Release("volumeattachments")
		f.server.Delete("volumeattachments", "", vaName)
		f.settle()
		f.server.Hold("volumeattachments")
		edit(finalizer)
		f.pass(2 * time.Second)
		require.True(f, f.gone())
		f.server.Release("volumeattachments")
		f.pass(time.Minute)
		f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
		f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
	})
}

// A volume that another one has the name of by now: what was attached is detached.
func TestDetachOfAVolumeWhoseNameIsAnothers(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		other := f.volume("other")
		detaching(f, vaOf(vaName, pvName), func(f *fixture) {
			takeVolume(f)
			f.server.Put(pvOf(pvName, other))
		})
		require.True(f, f.gone())
		require.Empty(f, f.double.Attachments())
	})
}

// The API server takes 1,024 bytes of an error.
func TestLongErrorsAreCut(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.double.Inject(`ControllerPublishVolume: return(INTERNAL, "` + strings.Repeat("long ", 500) + `")`)
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		require.Len(f, f.va().Status.AttachError.Message, 1024)
		require.True(f, strings.HasSuffix(f.va().Status.AttachError.Message, "..."))
	})
}

// sparse is a driver that answers with as little as it may.
type sparse struct {
	instant
	name    string
	entries []*csi.ListVolumesResponse_Entry
	calls   chan string
}

func (s sparse) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: s.name}, nil
}

func (s sparse) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	all := []*csi.ControllerServiceCapability{{}, {Type: &csi.ControllerServiceCapability_Rpc{}}}
	for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	} {
		all = append(all, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: all}, nil
}

func (s sparse) ListVolumes(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return &csi.ListVolumesResponse{Entries: s.entries}, nil
}

func (s sparse) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s.calls <- "publish " + r.GetVolumeId()
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (s sparse) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	s.calls <- "unpublish " + r.GetVolumeId()
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// 502: volumes and states that a list lacks. And a publication without a context.
func TestAnswersThatLackWhatTheyMayLack(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		driver := sparse{name: driverName, calls: make(chan string, 9), entries: []*csi.ListVolumesResponse_Entry{
			{},
			{Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{nodeID}}},
			{Volume: &csi.Volume{VolumeId: "other"}},
			{Volume: &csi.Volume{VolumeId: "handle"}, Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{nodeID}}},
		}}
		f.config.Conn, f.config.ReconcilePeriod = drive(f.T, driver), time.Minute
		f.server.Put(pvOf(pvName, "handle"))
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.pass(10 * time.Minute)
		require.True(f, f.va().Status.Attached)
		require.Empty(f, f.va().Status.AttachmentMetadata)
		require.Len(f, driver.calls, 1)
		f.end()
	})
}

// A migrated volume that the driver has is attached and detached as any other.
func TestLifeOfAMigratedVolume(t *testing.T) {
	t.Parallel()
	const handle = "projects/UNSPECIFIED/zones/zone/disks/disk"
	run(t, func(f *fixture) {
		driver := sparse{name: gcePD, calls: make(chan string, 9), entries: []*csi.ListVolumesResponse_Entry{
			// The driver knows the project, the volume does not.
			{Volume: &csi.Volume{VolumeId: "projects/p/zones/zone/disks/disk"}, Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{gceNode}}},
		}}
		registry := prometheus.NewRegistry()
		f.config.Conn, f.config.ReconcilePeriod, f.config.Metrics = drive(f.T, driver), time.Minute, registry
		f.server.Put(put(csiNode(nodeID), func(n *storagev1.CSINode) {
			n.Spec.Drivers[0].Name, n.Spec.Drivers[0].NodeID = gcePD, gceNode
		}))
		f.server.Put(put(pvOf(pvName, ""), migrated))
		f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = gcePD }))
		f.start()
		f.pass(10 * time.Minute)
		require.True(f, f.va().Status.Attached)
		require.Equal(f, attachWrites, f.writes())
		f.server.Delete("volumeattachments", "", vaName)
		f.settle()
		require.True(f, f.gone())
		require.Equal(f, "publish "+handle, <-driver.calls)
		require.Equal(f, "unpublish "+handle, <-driver.calls)
		require.Empty(f, driver.calls)
		require.Equal(f, map[string]string{"ControllerPublishVolume": "true", "ControllerUnpublishVolume": "true"}, saidMigrated(f, registry))
		f.end()
	})
}

// saidMigrated is what the metric says of calls for migrated volumes, by method.
func saidMigrated(f *fixture, registry *prometheus.Registry) map[string]string {
	families, err := registry.Gather()
	require.NoError(f, err)
	said := map[string]string{}
	for _, family := range families {
		if family.GetName() != "csi_sidecar_operations_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["migrated"] != "" {
				said[path.Base(labels["method_name"])] = labels["migrated"]
			}
		}
	}
	return said
}

// gceNode is a node's id as the driver of GCE has it.
const gceNode = "projects/p/zones/zone/instances/node"
