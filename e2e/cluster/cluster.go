// Package cluster runs a Kubernetes cluster with real nodes as plain processes: a
// control plane of package control on this machine, and nodes that are namespaces
// of their own (network, host name, processes, mounts) with containerd and a kubelet each.
//
// It needs root, cgroup v1, and Debian's containerd, runc, CNI plugins and
// iproute2. Several clusters run side by side. README.md of this module says why
// things are as they are.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes"

	"github.com/csiemu/csiemu/e2e/control"
)

// Option changes what New makes.
type Option func(*options)

type options struct {
	nodes   int
	control control.Config
}

// Nodes gives the cluster that many nodes, from 1 (which is the default) to 9. Each
// takes about 150 MB of memory.
func Nodes(n int) Option { return func(o *options) { o.nodes = n } }

// FeatureGates sets gates of all components, as in Gate=true,Other=false.
func FeatureGates(gates string) Option { return func(o *options) { o.control.FeatureGates = gates } }

// RuntimeConfig has the API server serve further versions, as in
// storage.k8s.io/v1beta1=true.
func RuntimeConfig(config string) Option {
	return func(o *options) { o.control.RuntimeConfig = config }
}

// Cluster is a running cluster. Its methods are for one goroutine at a time, but
// those of different nodes may run at once.
type Cluster struct {
	// Kubeconfig is the path of a configuration with every right. It is valid on
	// the host and in the nodes.
	Kubeconfig string
	// Client has every right too.
	Client *kubernetes.Clientset

	// dir holds all files, and goes with the cluster.
	dir   string
	gates string
	claim *claim
	plane *control.Plane
	nodes []*Node
}

// mostNodes keeps the names of links and addresses simple.
const mostNodes = 9

// New starts a cluster with its files in a new directory in dir, and waits until
// its nodes are Ready and pods can be made: some 10 s. First it removes what other
// clusters have left whose process was killed. dir must be absolute, without
// symbolic links, and not in /run, /var/lib or /var/log, of which nodes have their
// own. The clusters of a process that ends without Close end with it.
func New(ctx context.Context, dir string, opts ...Option) (*Cluster, error) {
	o := options{nodes: 1}
	for _, opt := range opts {
		opt(&o)
	}
	if err := check(dir, o.nodes); err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	c := &Cluster{dir: filepath.Join(dir, "cluster"), gates: o.control.FeatureGates}
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	if err := c.start(ctx, o); err != nil {
		err = fmt.Errorf("start a cluster: %w%s", err, c.tails())
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func check(dir string, nodes int) error {
	if nodes < 1 || nodes > mostNodes {
		return fmt.Errorf("make %d nodes: give 1 to %d; package control does without", nodes, mostNodes)
	}
	if os.Geteuid() != 0 {
		return errors.New("make namespaces: only root can")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(dir) || real != dir {
		return fmt.Errorf("use %s: its path must be absolute and without symbolic links", dir)
	}
	for _, own := range []string{"/run", "/var/lib", "/var/log"} {
		if strings.HasPrefix(dir+"/", own+"/") {
			return fmt.Errorf("use %s: nodes have a %s of their own", dir, own)
		}
	}
	return checkPrograms()
}

func (c *Cluster) start(ctx context.Context, o options) (err error) {
	if c.claim, err = claimAny(c.dir); err != nil {
		return err
	}
	net := network(c.claim.number)
	if err := net.up(ctx); err != nil {
		return err
	}
	if err := writeImages(c.images()); err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	o.control.Address = net.host()
	for i := range o.nodes {
		n := newNode(c, i+1)
		c.nodes = append(c.nodes, n)
		o.control.Nodes = append(o.control.Nodes, n.Name)
	}
	// The nodes' containerds start while the control plane does.
	var begun sync.WaitGroup
	failed := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		begun.Go(func() { failed[i] = n.begin(ctx) })
	}
	plane := filepath.Join(c.dir, "control")
	if err = os.Mkdir(plane, 0o755); err == nil {
		c.plane, err = control.New(ctx, plane, o.control)
	}
	begun.Wait()
	if err = errors.Join(append(failed, err)...); err != nil {
		return err
	}
	c.Kubeconfig, c.Client = c.plane.Kubeconfig, c.plane.Client
	for _, n := range c.nodes {
		if err := n.StartKubelet(); err != nil {
			return err
		}
	}
	return c.ready(ctx)
}

// images is the archive of the images that every node has.
func (c *Cluster) images() string { return filepath.Join(c.dir, "images.tar") }

// Node is the node whose name is "node" and i, from 1 on.
func (c *Cluster) Node(i int) *Node { return c.nodes[i-1] }

// Nodes are all nodes.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// StopAPIServer ends the API server at once, as a crash does; all else goes on.
func (c *Cluster) StopAPIServer() error { return c.plane.StopAPIServer() }

// StartAPIServer starts it again, at the same address and with all objects, and
// waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error { return c.plane.StartAPIServer(ctx) }

// Close ends the cluster and everything in its nodes, and removes its files, links,
// cgroups and the loop devices over files in its directory. An error tells what had
// ended by itself, or what could not be removed.
func (c *Cluster) Close() error {
	var all error
	for _, n := range c.nodes {
		all = errors.Join(all, n.failure(), n.Kill())
	}
	if c.plane != nil {
		all = errors.Join(all, c.plane.Close())
	}
	if c.claim == nil {
		return errors.Join(all, os.RemoveAll(c.dir))
	}
	return errors.Join(all, remove(c.claim.number, c.dir), c.claim.release())
}
