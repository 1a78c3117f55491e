// Package control runs a control plane of Kubernetes as plain processes: etcd, the
// API server and controllers. By itself it has no nodes, no pods and no scheduler:
// then everything listens on loopback or on sockets in one directory. Package
// cluster adds nodes. Nothing outlives the process that started it.
package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/e2e/programs"
)

// Config says what a control plane is like. The zero value is one for the objects
// of volumes, without nodes.
type Config struct {
	// Address is the address of this machine at which the API server listens;
	// empty for 127.0.0.1. Whoever reaches it needs a token.
	Address string
	// Nodes are the names of the nodes that will join. With any, there are a
	// scheduler, all controllers and service accounts.
	Nodes []string
	// FeatureGates, as in Gate=true,Other=false, are those of all components.
	FeatureGates string
	// RuntimeConfig are API versions that the API server serves beyond the usual,
	// as in storage.k8s.io/v1beta1=true.
	RuntimeConfig string
}

// Plane is a running control plane.
type Plane struct {
	// Kubeconfig is the path of a configuration with every right.
	Kubeconfig string
	// Client has every right too.
	Client *kubernetes.Clientset
	// REST is the configuration of Client, to be copied.
	REST *rest.Config

	config Config
	dir    string
	http   *http.Client
	api    *apiserver
	// processes in the order in which they were started, but for the API server.
	processes []*process.Process
}

// controllers are what the life of a claim needs.
const controllers = "persistentvolume-binder-controller,persistentvolumeclaim-protection-controller,persistentvolume-protection-controller"

// New starts a control plane with its files in dir, which must have a short path
// and belongs to the caller, and waits until it is ready.
func New(ctx context.Context, dir string, config Config) (*Plane, error) {
	p := &Plane{Kubeconfig: kubeconfig(dir, admin), config: config, dir: dir}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane: %w", err), p.Close())
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context) error {
	etcd := "unix://" + filepath.Join(p.dir, "etcd.sock")
	peer := "unix://" + filepath.Join(p.dir, "peer.sock")
	// What is written need not survive this machine: no fsync.
	if err := p.run("etcd", "--name=one", "--data-dir="+filepath.Join(p.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=one="+peer); err != nil {
		return err
	}
	var err error
	if p.api, err = p.newAPIServer(ctx, etcd); err != nil {
		return err
	}
	if err := p.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := p.run("kube-controller-manager", p.controllerFlags()...); err != nil {
		return err
	}
	if len(p.config.Nodes) == 0 {
		return nil
	}
	return p.run("kube-scheduler", "--kubeconfig="+p.Kubeconfig, "--secure-port=0", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--feature-gates="+p.config.FeatureGates)
}

func (p *Plane) controllerFlags() []string {
	flags := []string{
		"--kubeconfig=" + p.Kubeconfig, "--secure-port=0", "--leader-elect=false", "--feature-gates=" + p.config.FeatureGates,
		// Without the period a claim made together with its volume waits 15 s;
		// without the rates the first service account is seconds late.
		"--pvclaimbinder-sync-period=1s", "--kube-api-qps=500", "--kube-api-burst=1000",
		// It would make the usual one, in /usr.
		"--flex-volume-plugin-dir=" + filepath.Join(p.dir, "flex"),
	}
	if len(p.config.Nodes) == 0 {
		return append(flags, "--controllers="+controllers)
	}
	return append(flags, "--service-account-private-key-file="+p.api.key, "--root-ca-file="+p.api.certificate,
		"--use-service-account-credentials",
		"--node-monitor-grace-period=16s") // a lost node is noticed sooner
}

// run starts a program that runs as long as the plane.
func (p *Plane) run(name string, args ...string) error {
	started, err := start(p.dir, name, args...)
	if err == nil {
		p.processes = append(p.processes, started)
	}
	return err
}

func start(dir, name string, args ...string) (*process.Process, error) {
	path, err := programs.Path(name)
	if err != nil {
		return nil, err
	}
	return process.Start(process.Command{Name: name, Dir: dir, Path: path, Args: args})
}

// Close ends all processes, the last first. One that ended by itself is an error.
func (p *Plane) Close() error {
	var all error
	if p.http != nil {
		utilnet.CloseIdleConnectionsFor(p.http.Transport)
	}
	for i := len(p.processes) - 1; i >= 0; i-- {
		if i == 0 { // etcd
			all = errors.Join(all, p.StopAPIServer())
		}
		all = errors.Join(all, p.processes[i].Stop())
	}
	p.processes = nil
	return all
}
