package attacher_test

import (
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/csitest"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(f *fixture){
		"what is attached and recorded so is left alone": func(f *fixture) {
			f.pass(time.Hour)
			f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
			require.Len(f, f.writes(), len(attachWrites))
		},
		"what somebody detached is attached again": func(f *fixture) {
			f.unpublish()
			f.pass(2 * time.Minute)
			f.attached()
			f.double.Journal().WantCount(f, 2, "ControllerPublishVolume")
		},
		"what was detached and attached to is left without a VolumeAttachment": func(f *fixture) {
			f.server.Delete("volumeattachments", "", vaName)
			f.settle()
			_, err := f.double.Controller().ControllerPublishVolume(f.Context(), &csi.ControllerPublishVolumeRequest{
				VolumeId: f.handle, NodeId: nodeID, VolumeCapability: f.capabilityOf(),
			})
			require.NoError(f, err)
			f.pass(time.Hour)
			require.Len(f, f.double.Attachments(), 1)
		},
		"what others hold after the detach is not detached again": func(f *fixture) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
				m := va["metadata"].(map[string]any)
				m["finalizers"] = append(m["finalizers"].([]any), "other/one")
			})
			f.server.Delete("volumeattachments", "", vaName)
			f.pass(time.Hour)
			f.double.Journal().WantCount(f, 1, "ControllerUnpublishVolume")
		},
		"what is attached and not recorded so is asked for again": func(f *fixture) {
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
				va["status"] = map[string]any{"attached": false}
			})
			f.double.Inject("ControllerPublishVolume: 1*return(INTERNAL)->ok") // what the edit causes
			f.settle()
			require.False(f, f.va().Status.Attached)
			f.pass(time.Minute) // less than the wait of a retry
			f.attached()
			f.double.Journal().WantCount(f, 2, published)
		},
		"what cannot be detached is asked for again once somebody did it": func(f *fixture) {
			f.double.Inject("ControllerUnpublishVolume: 1*return(INTERNAL)->ok")
			f.server.Delete("volumeattachments", "", vaName)
			f.settle()
			require.NotNil(f, f.va().Status.DetachError)
			f.unpublish()
			f.pass(time.Minute) // less than the wait of a retry
			require.True(f, f.gone())
		},
		"a VolumeAttachment of two sources does no harm": func(f *fixture) {
			f.server.Put(put(inlineVA(f.handle), func(va *storagev1.VolumeAttachment) {
				va.Name, va.Spec.Source.PersistentVolumeName, va.Status.Attached = "both", new(pvName), true
				va.Spec.NodeName = "unknown"
			}))
			f.pass(time.Hour)
			f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
		},
		"lists that fail do no harm": func(f *fixture) {
			f.double.Inject("ListVolumes: 3*return(INTERNAL)->ok")
			f.unpublish()
			f.pass(5 * time.Minute)
			f.attached()
		},
		"a slow list of many pages is not held to the limit of one call": func(f *fixture) {
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				f.volume(name)
			}
			f.double.Inject("ListVolumes: sleep(8s)")
			f.unpublish()
			f.pass(5 * time.Minute)
			f.attached()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.config.ReconcilePeriod, f.config.MaxEntries = time.Minute, 1
				f.config.RetryStart = 2 * time.Minute
				f.server.Put(vaOf(vaName, pvName))
				f.start()
				f.attached()
				test(f)
			}, csitest.Lenient())
		})
	}
}

// unpublish detaches behind the attacher's back.
func (f *fixture) unpublish() {
	f.Helper()
	_, err := f.double.Controller().ControllerUnpublishVolume(f.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: f.handle, NodeId: nodeID})
	require.NoError(f, err)
}

// A list that was asked for before an attach ended must not have it repeated.
func TestReconcileDoesNotRepeatWhatHappensMeanwhile(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.config.ReconcilePeriod = time.Minute
		f.double.Inject("ListVolumes: sleep(10s)")
		f.start()
		f.server.Put(vaOf(vaName, pvName))
		f.pass(time.Hour)
		f.attached()
		f.double.Journal().WantCount(f, 1, "ControllerPublishVolume")
	})
}

const gcePD = "pd.csi.storage.gke.io"

// migrated makes the volume one of a plugin that was in the tree.
func migrated(pv *corev1.PersistentVolume) {
	pv.Annotations = map[string]string{"pv.kubernetes.io/migrated-to": gcePD}
	pv.Labels = map[string]string{"topology.kubernetes.io/zone": "zone"}
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk", FSType: "ext4"}}
}

func TestMigratedVolumes(t *testing.T) {
	t.Parallel()
	ofGCE := func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = gcePD }
	node := put(csiNode(nodeID), func(n *storagev1.CSINode) { n.Spec.Drivers[0].Name = gcePD })
	const gceFinalizer = "external-attacher/pd-csi-storage-gke-io"
	for name, test := range map[string]func(f *fixture){
		"attached and detached by the handle of the driver": func(f *fixture) {
			f.double.Inject("ControllerPublishVolume: return(UNAVAILABLE)")
			f.server.Put(put(vaOf(vaName, pvName), ofGCE))
			f.start()
			require.Equal(f, []string{gceFinalizer}, f.va().Finalizers)
			f.double.Journal().Want(f, "ControllerPublishVolume{volume=projects/UNSPECIFIED/zones/zone/disks/disk}")
			f.server.Delete("volumeattachments", "", vaName)
			f.settle()
			f.double.Journal().Want(f, "ControllerUnpublishVolume{volume=projects/UNSPECIFIED/zones/zone/disks/disk,code=OK}")
			require.True(f, f.gone())
		},
		"one that is migrated here keeps our finalizer": func(f *fixture) {
			f.server.Put(put(put(pvOf(pvName, ""), migrated), func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{gceFinalizer} }))
			f.start()
			require.Equal(f, []string{gceFinalizer}, f.pv().Finalizers)
		},
		"one that is not migrated any more loses it": func(f *fixture) {
			f.server.Put(put(put(pvOf(pvName, ""), migrated), func(pv *corev1.PersistentVolume) {
				pv.Finalizers, pv.Annotations = []string{gceFinalizer}, nil
			}))
			f.start()
			require.Empty(f, f.pv().Finalizers)
		},
		"one that is migrated to another driver loses it": func(f *fixture) {
			f.server.Put(put(put(pvOf(pvName, ""), migrated), func(pv *corev1.PersistentVolume) {
				pv.Finalizers, pv.Annotations["pv.kubernetes.io/migrated-to"] = []string{gceFinalizer}, "other.example.com"
			}))
			f.start()
			require.Empty(f, f.pv().Finalizers)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.server.Put(node.DeepCopy())
				f.server.Put(put(pvOf(pvName, ""), migrated))
				test(f)
			}, csitest.DriverName(gcePD), csitest.Lenient())
		})
	}
}

func TestOneOfTwoLeads(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		elect := func(identity string) *attacher.LeaderElection {
			return &attacher.LeaderElection{Namespace: "ns", Identity: identity}
		}
		first := &fixture{T: f.T, server: f.server, double: f.double, config: f.config}
		first.config.LeaderElection, first.config.Status = elect("first"), new(attacher.Status)
		first.start()
		f.config.LeaderElection, f.config.Status = elect("second"), new(attacher.Status)
		f.start()
		f.server.Put(vaOf(vaName, pvName))
		f.pass(time.Minute)
		f.attached()
		require.NoError(f, first.config.Status.Ready())
		require.ErrorContains(f, f.config.Status.Ready(), "the lease is another's")
		require.NoError(f, first.config.Status.Lease())

		first.end() // gives the lease back: the second need not wait 15 s
		f.pass(6 * time.Second)
		require.NoError(f, f.config.Status.Ready())

		// Lost: somebody else has it.
		f.server.Edit("leases", "ns", "external-attacher-leader-memory-csiemu-dev", func(lease map[string]any) {
			lease["spec"].(map[string]any)["holderIdentity"] = "thief"
			lease["spec"].(map[string]any)["renewTime"] = time.Now().Add(time.Minute).UTC().Format("2006-01-02T15:04:05.000000Z")
		})
		require.ErrorIs(f, <-f.done, attacher.ErrLeaseLost)
		f.stop()
		f.stop = nil
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		registry := prometheus.NewRegistry()
		f.config.Metrics = registry
		f.server.Put(vaOf(vaName, "unknown"))
		f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) {
			va["metadata"].(map[string]any)["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		})
		f.server.Put(vaOf("good", pvName))
		f.start()
		f.pass(time.Minute)
		for _, name := range []string{
			"csi_sidecar_operations_seconds", "workqueue_depth", "workqueue_adds_total", "workqueue_retries_total",
			"workqueue_queue_duration_seconds", "workqueue_work_duration_seconds", "workqueue_unfinished_work_seconds",
			"workqueue_longest_running_processor_seconds", "csiemu_attacher_pending", "csiemu_attacher_oldest_pending_seconds",
		} {
			n, err := testutil.GatherAndCount(registry, name)
			require.NoError(f, err)
			require.Positive(f, n, name)
		}
		require.Equal(f, map[string]float64{"attach": 1, "detach": 0}, f.gauges(registry, "csiemu_attacher_pending"))
		oldest := f.gauges(registry, "csiemu_attacher_oldest_pending_seconds")
		require.InDelta(f, 60, oldest["attach"], 2, "what waits in the back-off is late too")
		require.Zero(f, oldest["detach"])
		problems, err := testutil.GatherAndLint(registry)
		require.NoError(f, err)
		require.Empty(f, problems)
	})
}

// gauges are the values of a gauge by its operation.
func (f *fixture) gauges(registry *prometheus.Registry, name string) map[string]float64 {
	f.Helper()
	families, err := registry.Gather()
	require.NoError(f, err)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == name && label.GetName() == "operation" {
					values[label.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return values
}
