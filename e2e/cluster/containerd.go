package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// containerdConfig is the configuration of containerd, with the pause image, the
// directory of CNI plugins and that of CNI configurations to be filled in.
// restrict_oom_score_adj: a machine may lack the right to lower a score
// (CAP_SYS_RESOURCE), and no container would start. The plugins that are left out
// need file systems that nobody has here, or write to /opt of the host.
const containerdConfig = `version = 2
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.restart", "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = %q
  conf_dir = %q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
`

// cniConfig gives pods addresses in their node; nothing routes them further.
const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "dataDir": "/run/cni-ipam"}
}]}
`

// startContainerd starts the container runtime and gives it the images.
func (n *Node) startContainerd(ctx context.Context) error {
	cni, config := filepath.Join(n.Dir, "cni"), filepath.Join(n.Dir, "containerd.toml")
	for path, text := range map[string]string{
		config:                                 fmt.Sprintf(containerdConfig, pauseImage, plugins, cni),
		filepath.Join(cni, "10-pods.conflist"): cniConfig,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	started, err := n.Enter("containerd", "containerd", "--config", config)
	if err != nil {
		return err
	}
	n.containerd = started
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := n.Output(ctx, "ctr", "--namespace=k8s.io", "images", "import", n.cluster.images())
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-started.Ended():
			return started.Failure()
		case <-ctx.Done():
			return fmt.Errorf("import images in %s: %w: %w", n.Name, context.Cause(ctx), err)
		}
	}
}
