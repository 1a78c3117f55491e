package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// kubeletConfig is the configuration of a kubelet, with its cgroup and the
// directory of pods' logs to be filled in.
//
// failCgroupV1: it refuses cgroup v1 otherwise. cgroupDriver: there need not be a
// systemd. oomScoreAdj: a machine may lack the right to lower a score. Eviction and
// image collection: the disk is shared with the machine, and a full one must not
// end pods. Authorization: only this machine reaches the bridge.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: %s
oomScoreAdj: 0
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "50Mi", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
podLogsDir: %s
volumePluginDir: /var/lib/kubelet/volume-plugins
`

// StartKubelet starts the kubelet. It does not wait until the node is Ready.
func (n *Node) StartKubelet() error {
	config := filepath.Join(n.Dir, "kubelet.yaml")
	text := fmt.Sprintf(kubeletConfig, "/"+cgroup(n.cluster.claim.number)+"/"+n.Name, filepath.Join(n.Dir, "pod-logs"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	started, err := n.Enter("kubelet", "kubelet", "--kubeconfig="+n.cluster.plane.KubeconfigOf(n.Name), "--config="+config,
		"--hostname-override="+n.Name, "--node-ip="+n.Address, "--feature-gates="+n.cluster.gates, "--v=2")
	if err == nil {
		n.kubelet = started
	}
	return err
}

// StopKubelet ends the kubelet; pods, drivers and mounts stay.
func (n *Node) StopKubelet() error {
	if n.kubelet == nil {
		return nil
	}
	err := n.kubelet.Stop()
	n.kubelet = nil
	return err
}

// RestartKubelet ends the kubelet and starts it again.
func (n *Node) RestartKubelet() error {
	if err := n.StopKubelet(); err != nil {
		return err
	}
	return n.StartKubelet()
}
