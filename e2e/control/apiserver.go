package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csiemu/csiemu/e2e/process"
)

// apiserver is the API server, running or not.
type apiserver struct {
	flags []string
	// url is where it serves; certificate and key are the files of what it serves
	// with and what it signs tokens of service accounts with.
	url, certificate, key string
	// process is nil while it does not run.
	process *process.Process
}

// newAPIServer prepares the API server: its address, its keys and its users.
func (p *Plane) newAPIServer(ctx context.Context, etcd string) (*apiserver, error) {
	address := p.config.Address
	if address == "" {
		address = "127.0.0.1"
	}
	port, err := freePort(ctx, address)
	if err != nil {
		return nil, err
	}
	tokens := filepath.Join(p.dir, "tokens.csv")
	s := &apiserver{
		url:         "https://" + net.JoinHostPort(address, port),
		certificate: filepath.Join(p.dir, "apiserver.crt"),
		key:         filepath.Join(p.dir, "accounts.key"),
	}
	s.flags = []string{
		"--etcd-servers=" + etcd, "--cert-dir=" + p.dir, "--bind-address=" + address, "--secure-port=" + port,
		// The certificate that it makes for itself is valid for this address.
		"--advertise-address=" + address, "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file=" + tokens,
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + s.key, "--service-account-signing-key-file=" + s.key,
		"--feature-gates=" + p.config.FeatureGates, "--runtime-config=" + p.config.RuntimeConfig,
	}
	if len(p.config.Nodes) > 0 {
		s.flags = append(s.flags, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			// Logs and exec must work without a name server, and node plugins of
			// drivers are privileged.
			"--kubelet-preferred-address-types=InternalIP", "--allow-privileged")
	} else {
		// There is no controller that makes service accounts, and no pod for one.
		s.flags = append(s.flags, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount")
	}
	if err := writeKey(s.key); err != nil {
		return nil, err
	}
	p.api = s
	return s, p.writeUsers(tokens)
}

// StartAPIServer starts the API server at the address that it had before, and
// waits until it is ready.
func (p *Plane) StartAPIServer(ctx context.Context) (err error) {
	if p.api.process, err = start(p.dir, "kube-apiserver", p.api.flags...); err != nil {
		return err
	}
	return p.ready(ctx)
}

// StopAPIServer ends the API server at once, as a crash does: told to end, it waits
// up to a minute for those who watch. What it knows is in etcd and stays. That it
// ended by itself before is an error.
func (p *Plane) StopAPIServer() error {
	if p.api == nil || p.api.process == nil {
		return nil
	}
	err := errors.Join(p.api.process.Failure(), p.api.process.Kill())
	p.api.process = nil
	return err
}

// poll is how often a process that tells nobody is asked whether it is ready.
const poll = 50 * time.Millisecond

// ready waits until the API server serves.
func (p *Plane) ready(ctx context.Context) error {
	again := time.NewTicker(poll)
	defer again.Stop()
	server := p.api.process
	for {
		err := p.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-server.Ended():
			return server.Failure()
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w: %w; the end of its log: %s", context.Cause(ctx), err, server.Tail())
		}
	}
}

func (p *Plane) ask(ctx context.Context) error {
	if p.Client == nil {
		if err := p.connect(); err != nil {
			return err
		}
	}
	return p.Client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// connect makes the client. The certificate of the API server must be there.
func (p *Plane) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	if p.http, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	p.REST = config
	p.Client, err = kubernetes.NewForConfigAndClient(config, p.http)
	return err
}

// freePort is a port that was free a moment ago: the API server cannot choose one
// itself. If another process takes it meanwhile, the API server says so and ends.
func freePort(ctx context.Context, address string) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
