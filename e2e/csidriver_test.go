package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/csiemu/csiemu/e2e/cluster"
	"github.com/csiemu/csiemu/e2e/process"
)

// declared is a stage with a driver of its own on the one node of a cluster, which
// is what a CSIDriver object of testdata/csidriver declares.
type declared struct {
	*stage
	cluster *cluster.Cluster
	node    *cluster.Node
	program string
	// socket is the driver's in the node.
	socket  string
	driving *process.Process
	// backend is the driver's, fsType the file system of its volumes.
	backend, fsType string
}

// TestCSIDriverObjects applies the objects of testdata/csidriver and shows what
// each field has Kubernetes do with the driver.
func TestCSIDriverObjects(t *testing.T) {
	t.Parallel()
	program, c := buildCSIEmu(t), newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	t.Run("objects", func(t *testing.T) {
		for name, check := range map[string]func(*declared){
			"loop":              (*declared).isAttached,
			"no-attach":         (*declared).isNotAttached,
			"pod-info":          (*declared).hearsOfPods,
			"inline":            (*declared).isForPodsOnly,
			"fsgroup-none":      (*declared).keepsGroups,
			"fsgroup-file":      (*declared).hasGroupsChanged,
			"fsgroup-default":   (*declared).hasGroupsChangedForOneWriter,
			"tmpfs":             (*declared).isForBoth,
			"tokens":            (*declared).getsTokensAsSecrets,
			"tokens-in-context": (*declared).getsTokensInTheContext,
			"republish":         (*declared).isAskedAgain,
			"selinux":           (*declared).getsNoContextWithoutSELinux,
			"capacity":          (*declared).isScheduledByCapacity,
			"limits":            (*declared).isAskedForLimits,
			"scheduling":        (*declared).isWaitedFor,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(ctx, limit)
				t.Cleanup(cancel)
				d := &declared{
					stage:   &stage{T: t, ctx: ctx, client: c.Client, name: name, driver: name + ".csiemu.dev"},
					cluster: c, node: c.Node(1), program: program, backend: "tmpfs", fsType: "tmpfs",
				}
				d.socket = cluster.KubeletDir + "/plugins/" + name + "/csi.sock" // short enough for a socket
				d.apply()
				check(d)
			})
		}
	})
}

// apply makes the object that has the name of the stage.
func (d *declared) apply() {
	d.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "csidriver", d.name+".yaml"))
	require.NoError(d, err)
	var object storage.CSIDriver
	require.NoError(d, yaml.UnmarshalStrict(text, &object))
	require.Equal(d, d.driver, object.Name)
	_, err = d.client.StorageV1().CSIDrivers().Create(d.ctx, &object, metav1.CreateOptions{})
	require.NoError(d, err)
}

// onHost is where the host sees the driver's socket.
func (d *declared) onHost() string {
	d.Helper()
	at, err := d.node.OnHost(d.socket)
	require.NoError(d, err)
	return at
}

func (d *declared) journal() string { return filepath.Join(filepath.Dir(d.onHost()), "journal") }

// withDevices has the driver make volumes that several nodes could use.
func (d *declared) withDevices() { d.backend, d.fsType = "loop", "ext4" }

// serve starts the driver.
func (d *declared) serve(flags ...string) {
	d.Helper()
	require.NoError(d, os.MkdirAll(filepath.Dir(d.onHost()), 0o755))
	dir := filepath.Dir(d.socket)
	p, err := d.node.Enter(d.driver, append([]string{
		d.program, "serve", "--endpoint=unix://" + d.socket, "--state-dir=" + dir + "/state", "--backend=" + d.backend,
		"--driver-name=" + d.driver, "--node=" + d.node.Name, "--journal=" + dir + "/journal",
	}, flags...)...)
	require.NoError(d, err)
	d.driving = p
	d.Cleanup(func() {
		require.NoError(d, p.Stop())
		if d.Failed() {
			d.Logf("the end of the log of %s: %s", d.driver, p.Tail())
			d.logEvents()
		}
	})
}

// start starts the driver and makes it known.
func (d *declared) start(flags ...string) {
	d.Helper()
	d.serve(flags...)
	d.register()
}

// register makes the driver known to the kubelet, and waits until it is.
func (d *declared) register() {
	d.Helper()
	enter(d.T, d.node, d.driver+"-registrar", d.program, "registrar", "--csi-address="+d.socket, "--kubelet-registration-path="+d.socket,
		"--plugin-registration-path="+cluster.KubeletDir+"/plugins_registry")
	d.registered(func(storage.CSINodeDriver) bool { return true })
}

// registered waits until the node's object tells of the driver what it should.
func (d *declared) registered(is func(storage.CSINodeDriver) bool) {
	d.Helper()
	until(d.stage, d.client.StorageV1().CSINodes().Watch, d.node.Name, func(n *storage.CSINode) bool {
		for _, known := range n.Spec.Drivers {
			if known.Name == d.driver {
				return is(known)
			}
		}
		return false
	})
}

// volume makes a volume, its object and a claim, all of the name of the stage.
func (d *declared) volume(edits ...func(*csi.CreateVolumeRequest)) *csi.Volume {
	d.Helper()
	return d.volumeFor(core.ReadWriteOnce, edits...)
}

func (d *declared) volumeFor(mode core.PersistentVolumeAccessMode, edits ...func(*csi.CreateVolumeRequest)) *csi.Volume {
	d.Helper()
	conn, err := grpc.NewClient("unix://"+d.onHost(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(d, err)
	defer conn.Close()
	r := &csi.CreateVolumeRequest{
		Name: d.name, CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}
	for _, edit := range edits {
		edit(r)
	}
	reply, err := csi.NewControllerClient(conn).CreateVolume(d.ctx, r, grpc.WaitForReady(true))
	require.NoError(d, err)
	modes := []core.PersistentVolumeAccessMode{mode}
	d.persistent(reply.GetVolume(), func(p *core.PersistentVolume) { p.Spec.CSI.FSType, p.Spec.AccessModes = d.fsType, modes })
	d.claim(d.name, 1, d.name, func(c *core.PersistentVolumeClaim) { c.Spec.AccessModes = modes })
	return reply.GetVolume()
}

// inline has a pod describe its volume itself.
func (d *declared) inline(p *core.Pod) {
	p.Spec.Volumes[0].VolumeSource = core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: d.driver}}
}

// logEvents says what Kubernetes has said of the pods of the stage.
func (d *declared) logEvents() {
	all, err := d.client.CoreV1().Events(namespace).List(context.WithoutCancel(d.ctx), metav1.ListOptions{})
	require.NoError(d, err)
	for _, e := range all.Items {
		if strings.HasPrefix(e.InvolvedObject.Name, d.name) {
			d.Logf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// published is the first call of NodePublishVolume that succeeded for a volume.
func (d *declared) published(volume string) *csi.NodePublishVolumeRequest {
	d.Helper()
	return request[*csi.NodePublishVolumeRequest](d.stage, succeeded(d.stage, d.journal(), volume), "NodePublishVolume")
}

// publishes counts them.
func (d *declared) publishes(volume string) (n int) {
	d.Helper()
	for _, e := range succeeded(d.stage, d.journal(), volume) {
		if e.Method == "NodePublishVolume" {
			n++
		}
	}
	return n
}

// refused waits until the kubelet says of a pod that its volume cannot be mounted,
// and why.
func (d *declared) refused(pod, why string) {
	d.Helper()
	w, err := d.client.CoreV1().Events(namespace).Watch(d.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	require.NoError(d, err)
	defer w.Stop()
	var said []string
	for {
		change := nextOf(d.stage, w, pod, said)
		if e, ok := change.Object.(*core.Event); ok {
			if said = append(said, e.Message); strings.Contains(e.Message, why) {
				return
			}
		}
	}
}

// nextOf is next, with what was said before in the error.
func nextOf(s *stage, w watch.Interface, name string, before []string) watch.Event {
	s.Helper()
	select {
	case change, open := <-w.ResultChan():
		require.True(s, open, "the watch of %s has ended", name)
		return change
	case <-s.ctx.Done():
		require.NoError(s, s.ctx.Err(), "wait for an event of %s; there were %q", name, before)
		return watch.Event{}
	}
}
