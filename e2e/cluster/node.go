package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/e2e/programs"
)

// KubeletDir is the directory of the kubelet, as the programs in a node see it.
const KubeletDir = "/var/lib/kubelet"

// Node is a node of a cluster: namespaces, and the programs in them.
type Node struct {
	// Name is that of the Node object and of the host in the node: node1, node2, …
	Name string
	// Dir is the directory of the node's files on the host, logs among them.
	Dir string
	// Address is that of the node on the network of the cluster.
	Address string

	cluster *Cluster
	number  int

	// init is the first process; nil while the node is down.
	init   *process.Process
	inside *process.Namespaces
	// containerd and kubelet are nil while they do not run.
	containerd, kubelet *process.Process

	mu sync.Mutex
	// entered are the processes that Enter has started since the node is up.
	entered []*process.Process
}

func newNode(c *Cluster, number int) *Node {
	name := fmt.Sprintf("node%d", number)
	return &Node{
		Name: name, Dir: filepath.Join(c.dir, name), Address: network(c.claim.number).node(number),
		cluster: c, number: number,
	}
}

// OnHost is where the host sees a path in KubeletDir, without what is mounted
// there.
func (n *Node) OnHost(path string) (string, error) {
	rel, err := filepath.Rel(KubeletDir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("find %s on the host: it is not in %s", path, KubeletDir)
	}
	return filepath.Join(n.Dir, "kubelet", rel), nil
}

// begin makes the node up to its container runtime.
func (n *Node) begin(ctx context.Context) error {
	for _, sub := range []string{"kubelet", "containerd", "cni", "pod-logs"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := makeCgroup(n.cluster.claim.number, n.Name); err != nil {
		return err
	}
	if err := n.unshare(); err != nil {
		return fmt.Errorf("make the namespaces of %s: %w", n.Name, err)
	}
	if err := network(n.cluster.claim.number).join(ctx, n.number, n.init.PID(), n.inside); err != nil {
		return fmt.Errorf("connect %s: %w", n.Name, err)
	}
	return n.startContainerd(ctx)
}

// unshare starts the first process of the node's namespaces.
func (n *Node) unshare() error {
	path, err := programs.Path("nodeinit")
	if err != nil {
		return err
	}
	ready, told, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	n.init, err = process.Start(process.Command{
		Name: "nodeinit", Dir: n.Dir, Path: path, Args: []string{n.Dir, n.Name}, Files: []*os.File{told},
		Clone: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS,
	})
	if err := errors.Join(err, told.Close()); err != nil {
		return err
	}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		<-n.init.Ended()
		return n.init.Failure()
	}
	n.inside, err = process.Of(n.init.PID())
	return err
}

// Kill ends the node as a loss of power does: all its processes end at once, and
// with them its mounts and links. The API still knows the node. Its files and the
// loop devices that it had attached stay; those belong to the machine, as those of
// a storage network do.
func (n *Node) Kill() error {
	if n.init == nil {
		return nil
	}
	err := n.init.Kill()
	for _, p := range n.processes() {
		err = errors.Join(err, p.Kill())
	}
	if n.inside != nil {
		err = errors.Join(err, n.inside.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	err = errors.Join(err, network(n.cluster.claim.number).part(ctx, n.number))
	n.init, n.inside, n.containerd, n.kubelet, n.entered = nil, nil, nil, nil, nil
	return err
}

// Start starts a node that was killed, and its kubelet. It waits for its container
// runtime but not until it is Ready.
func (n *Node) Start(ctx context.Context) error {
	if n.init != nil {
		return fmt.Errorf("start %s: it is up", n.Name)
	}
	if err := n.begin(ctx); err != nil {
		return err
	}
	return n.StartKubelet()
}

// Disconnect takes the node off the network: nobody reaches it, but what is in it
// goes on.
func (n *Node) Disconnect(ctx context.Context) error { return n.link(ctx, "down") }

// Connect undoes Disconnect.
func (n *Node) Connect(ctx context.Context) error { return n.link(ctx, "up") }

func (n *Node) link(ctx context.Context, state string) error {
	return ip(ctx, nil, "link set "+network(n.cluster.claim.number).link(n.number)+" "+state)
}

// processes are those in the node, but for the first.
func (n *Node) processes() []*process.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := append([]*process.Process(nil), n.entered...)
	for _, p := range []*process.Process{n.containerd, n.kubelet} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// failure tells which program of the node has ended by itself.
func (n *Node) failure() error {
	var all error
	for _, p := range []*process.Process{n.init, n.containerd, n.kubelet} {
		if p != nil {
			all = errors.Join(all, p.Failure())
		}
	}
	return all
}
