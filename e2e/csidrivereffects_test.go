package e2e_test

import (
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What Kubernetes adds to the volume context.
const (
	podKey       = "csi.storage.k8s.io/pod.name"
	ephemeralKey = "csi.storage.k8s.io/ephemeral"
	tokensKey    = "csi.storage.k8s.io/serviceAccount.tokens"
)

// attachRequired: true.
func (d *declared) isAttached() {
	d.withDevices()
	d.serve()
	enter(d.T, d.node, "attacher", d.program, "attacher", "--csi-address="+d.socket, "--kubeconfig="+d.cluster.Kubeconfig)
	d.register()
	v := d.volume()
	d.pod(d.name)
	require.Equal(d, d.driver, d.attachment().Spec.Attacher)
	request[*csi.ControllerPublishVolumeRequest](d.stage, succeeded(d.stage, d.journal(), v.GetVolumeId()), "ControllerPublishVolume")
	require.NotContains(d, d.published(v.GetVolumeId()).GetVolumeContext(), podKey, "podInfoOnMount: false")
	d.unpodDetached(d.name)
}

// attachRequired: false.
func (d *declared) isNotAttached() {
	d.start("--no-attach")
	v := d.volume()
	d.pod(d.name)
	all, err := d.client.StorageV1().VolumeAttachments().List(d.ctx, metav1.ListOptions{})
	require.NoError(d, err)
	require.False(d, slices.ContainsFunc(all.Items, func(a storage.VolumeAttachment) bool { return a.Spec.Attacher == d.driver }))
	require.Empty(d, d.published(v.GetVolumeId()).GetPublishContext())
	// volumeLifecycleModes is [Persistent] where it is not given.
	d.makePod("no-attach-inline", d.inline)
	d.refused("no-attach-inline", `mode "Ephemeral" not supported`)
	d.unpod("no-attach-inline")
	d.unpod(d.name)
}

// podInfoOnMount: true.
func (d *declared) hearsOfPods() {
	d.start("--no-attach")
	v := d.volume()
	d.pod(d.name)
	context := d.published(v.GetVolumeId()).GetVolumeContext()
	require.Equal(d, d.name, context[podKey])
	require.Equal(d, namespace, context["csi.storage.k8s.io/pod.namespace"])
	require.Equal(d, "default", context["csi.storage.k8s.io/serviceAccount.name"])
	require.Equal(d, "false", context[ephemeralKey])
	pod, err := d.client.CoreV1().Pods(namespace).Get(d.ctx, d.name, metav1.GetOptions{})
	require.NoError(d, err)
	require.Equal(d, string(pod.UID), context["csi.storage.k8s.io/pod.uid"])
	d.unpod(d.name)
}

// volumeLifecycleModes: [Ephemeral].
func (d *declared) isForPodsOnly() {
	d.start("--no-attach")
	d.pod("inline-pod", d.inline)
	_, err := d.cluster.Exec(d.ctx, namespace, "inline-pod", "/podprog", "fill", dataFile, "1000", "5")
	require.NoError(d, err)
	d.unpod("inline-pod")
	d.volume()
	d.makePod(d.name)
	d.refused(d.name, `mode "Persistent" not supported`)
	d.unpod(d.name)
}

// volumeLifecycleModes: [Persistent, Ephemeral].
func (d *declared) isForBoth() {
	d.start("--no-attach")
	d.pod("tmpfs-inline", d.inline)
	v := d.volume()
	d.pod(d.name)
	require.Equal(d, "false", d.published(v.GetVolumeId()).GetVolumeContext()[ephemeralKey])
	d.unpod("tmpfs-inline")
	d.unpod(d.name)
}

// fsGroup is a group of which pods are.
const fsGroup = 4711

// group runs a pod of a group, and returns whom its volume belongs to.
func (d *declared) group(mode core.PersistentVolumeAccessMode) string {
	d.Helper()
	d.volumeFor(mode)
	group := int64(fsGroup)
	d.pod(d.name, func(p *core.Pod) { p.Spec.SecurityContext = &core.PodSecurityContext{FSGroup: &group} })
	out, err := d.cluster.Exec(d.ctx, namespace, d.name, "/podprog", "stat", "/data")
	require.NoError(d, err)
	d.unpod(d.name)
	return out
}

// without the capability it is the kubelet that changes groups.
const noGroups = "--disable=VOLUME_MOUNT_GROUP"

// fsGroupPolicy: None.
func (d *declared) keepsGroups() {
	d.start("--no-attach", noGroups)
	require.NotContains(d, d.group(core.ReadWriteOnce), "4711")
}

// fsGroupPolicy: File.
func (d *declared) hasGroupsChanged() {
	d.withDevices()
	d.start("--no-attach", noGroups)
	require.Contains(d, d.group(core.ReadWriteMany), "4711")
}

// fsGroupPolicy: ReadWriteOnceWithFSType.
func (d *declared) hasGroupsChangedForOneWriter() {
	d.withDevices()
	d.start("--no-attach", noGroups)
	require.Contains(d, d.group(core.ReadWriteOnce), "4711")
	many := *d
	many.stage = &stage{T: d.T, ctx: d.ctx, client: d.client, name: d.name + "-many", driver: d.driver}
	require.NotContains(d, many.group(core.ReadWriteMany), "4711")
}

// tokenRequests, with serviceAccountTokenInSecrets: true. The class demands them.
func (d *declared) getsTokensAsSecrets() {
	d.start("--no-attach")
	v := d.volume(func(r *csi.CreateVolumeRequest) {
		r.Parameters = map[string]string{"authFor": "NodePublishVolume", "authKey": tokensKey}
	})
	d.pod(d.name)
	require.NotContains(d, d.published(v.GetVolumeId()).GetVolumeContext(), tokensKey)
	d.unpod(d.name)
}

// tokenRequests.
func (d *declared) getsTokensInTheContext() {
	d.start("--no-attach")
	v := d.volume()
	d.pod(d.name)
	require.Contains(d, d.published(v.GetVolumeId()).GetVolumeContext(), tokensKey)
	d.unpod(d.name)
}

// requiresRepublish: true.
func (d *declared) isAskedAgain() {
	d.start("--no-attach")
	v := d.volume()
	d.pod(d.name)
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for d.publishes(v.GetVolumeId()) < 2 {
		select {
		case <-again.C:
		case <-d.ctx.Done():
			require.NoError(d, d.ctx.Err(), "wait for another NodePublishVolume")
		}
	}
	d.unpod(d.name)
}

// seLinuxMount: true. Without SELinux in the kernel no label is asked for.
func (d *declared) getsNoContextWithoutSELinux() {
	d.start("--no-attach")
	v := d.volume()
	d.pod(d.name, func(p *core.Pod) {
		p.Spec.SecurityContext = &core.PodSecurityContext{SELinuxOptions: &core.SELinuxOptions{Level: "s0:c1,c2"}}
	})
	flags := d.published(v.GetVolumeId()).GetVolumeCapability().GetMount().GetMountFlags()
	require.False(d, slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "context=") }), flags)
	d.unpod(d.name)
}

// storageCapacity: true.
func (d *declared) isScheduledByCapacity() {
	d.start("--no-attach")
	wait := storage.VolumeBindingWaitForFirstConsumer
	_, err := d.client.StorageV1().StorageClasses().Create(d.ctx, &storage.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}, Provisioner: d.driver, VolumeBindingMode: &wait,
	}, metav1.CreateOptions{})
	require.NoError(d, err)
	d.claim(d.name, 1, "")
	d.makePod(d.name)
	require.Contains(d, d.unschedulable(d.name), "did not have enough free storage")
	size := resource.MustParse("2Gi")
	_, err = d.client.StorageV1().CSIStorageCapacities(namespace).Create(d.ctx, &storage.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}, StorageClassName: d.name, Capacity: &size, NodeTopology: &metav1.LabelSelector{},
	}, metav1.CreateOptions{})
	require.NoError(d, err)
	d.claimIs(d.name, func(c *core.PersistentVolumeClaim) bool {
		return c.Annotations["volume.kubernetes.io/selected-node"] == d.node.Name
	})
	d.unpod(d.name)
}

// nodeAllocatableUpdatePeriodSeconds: 10.
func (d *declared) isAskedForLimits() {
	d.start("--attach-limit=5")
	has := func(n int32) func(storage.CSINodeDriver) bool {
		return func(known storage.CSINodeDriver) bool {
			return known.Allocatable != nil && known.Allocatable.Count != nil && *known.Allocatable.Count == n
		}
	}
	d.registered(has(5))
	require.NoError(d, d.driving.Stop())
	d.serve("--attach-limit=9")
	d.registered(has(9))
}

// preventPodSchedulingIfMissing: true.
func (d *declared) isWaitedFor() {
	d.serve("--no-attach")
	d.volume()
	d.bound(d.name)
	d.makePod(d.name)
	require.Contains(d, d.unschedulable(d.name), "CSI driver")
	d.register()
	d.running(d.name)
	d.unpod(d.name)
}
