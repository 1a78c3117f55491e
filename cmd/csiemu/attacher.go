package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/endpoint"
	"github.com/csiemu/csiemu/internal/role/kube"
)

const attacherText = `Attach and detach volumes for Kubernetes, by VolumeAttachments, until SIGTERM or
SIGINT; calls under way end first, and the lease is given back. It takes the flags of
external-attacher and works with any driver. A driver that is not there yet, or goes
away, is waited for without limit.

Exit status 1 also means that the lease was lost, or that another driver answers than
before: start it again.`

const attacherExample = `  csiemu attacher --csi-address /csi/csi.sock --leader-election --http-endpoint :8080
  csiemu attacher --csi-address /csi/csi.sock --kubeconfig ~/.kube/config --strict`

// attacherFlags are the flags of attacher.
type attacherFlags struct {
	csiAddress, kubeconfig, driverName string
	qps                                float64
	burst                              int
	config                             attacher.Config
	elect                              bool
	election                           attacher.LeaderElection
	labels                             []string
	httpEndpoint, metricsPath          string
	pprof                              bool
	log                                logFlags

	// Deprecated ones.
	metricsAddress string
	automaxprocs   bool
	maxLogLength   int
	featureGates   string
}

func newAttacher() *cobra.Command {
	var f attacherFlags
	cmd := &cobra.Command{
		Use:     "attacher",
		Short:   "Attach and detach volumes for Kubernetes, by VolumeAttachments",
		Long:    attacherText,
		Example: attacherExample,
		Version: emulator.Version(),
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd) },
	}
	f.define(cmd.Flags())
	return cmd
}

// define defines the flags, in the order in which --help shows them.
func (f *attacherFlags) define(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.csiAddress, "csi-address", "/run/csi/socket", "the driver's endpoint: a path, unix://PATH or tcp://HOST:PORT")
	flags.StringVar(&f.driverName, "driver-name", "", "what the driver must be called (default its own word)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server (default the pod's service account)")
	flags.DurationVar(&f.config.Timeout, "timeout", attacher.DefaultTimeout, "how long a call of the driver may take")
	flags.IntVar(&f.config.Workers, "worker-threads", attacher.DefaultWorkers, "most attaches under way at once, and most detaches")
	flags.IntVar(&f.config.Writes, "writes", attacher.DefaultWrites, "most requests to the API server under way at once")
	flags.DurationVar(&f.config.RetryStart, "retry-interval-start", attacher.DefaultRetryStart, "wait after a first failure; it doubles with each further one")
	flags.DurationVar(&f.config.RetryMax, "retry-interval-max", attacher.DefaultRetryMax, "longest wait after a failure")
	flags.DurationVar(&f.config.Resync, "resync", attacher.DefaultResync, "how often everything is looked at again; negative means never")
	flags.DurationVar(&f.config.ReconcilePeriod, "reconcile-sync", attacher.DefaultReconcilePeriod, "how often records are compared with ListVolumes; negative means never")
	flags.IntVar(&f.config.MaxEntries, "max-entries", 0, "volumes in a page of ListVolumes; 0 leaves it to the driver")
	flags.StringVar(&f.config.DefaultFSType, "default-fstype", "", "file system of volumes that name none")
	flags.DurationVar(&f.config.Grace, "grace", attacher.DefaultGrace, "how long calls under way may take after SIGTERM")
	flags.BoolVar(&f.config.Strict, "strict", false, "make the same writes in the same order as external-attacher")
	flags.Float64Var(&f.qps, "kube-api-qps", 0, "most requests a second to the API server; 0 leaves it to the server")
	flags.IntVar(&f.burst, "kube-api-burst", 10, "how many more at once; for --kube-api-qps")
	flags.BoolVar(&f.elect, "leader-election", false, "work only while holding a Lease, for several replicas")
	flags.StringVar(&f.election.Namespace, "leader-election-namespace", "", "`NAMESPACE` of the Lease (default the pod's; also POD_NAMESPACE)")
	flags.StringVar(&f.election.Identity, "leader-election-identity", "", "`NAME` of this process (default the host's)")
	flags.DurationVar(&f.election.LeaseDuration, "leader-election-lease-duration", 15*time.Second, "how long a Lease lasts that is not renewed")
	flags.DurationVar(&f.election.RenewDeadline, "leader-election-renew-deadline", 10*time.Second, "how long to try to renew it")
	flags.DurationVar(&f.election.RetryPeriod, "leader-election-retry-period", 5*time.Second, "how often to try")
	flags.StringSliceVar(&f.labels, "leader-election-labels", nil, "`LABEL` of the Lease, KEY:VALUE or KEY=VALUE; repeat for more")
	flags.StringVar(&f.httpEndpoint, "http-endpoint", "", "`ADDRESS` of /healthz, /readyz and metrics, HOST:PORT or unix://PATH (default none)")
	flags.StringVar(&f.metricsPath, "metrics-path", "/metrics", "`PATH` of the metrics there")
	flags.BoolVar(&f.pprof, "enable-pprof", false, "also serve /debug/pprof/ there")
	f.log.define(flags)
	flags.StringVar(&f.metricsAddress, "metrics-address", "", deprecated+"`ADDRESS`, as --http-endpoint")
	flags.IntVar(&f.maxLogLength, "max-grpc-log-length", -1, deprecated+"ignored, calls are logged at level debug only")
	flags.BoolVar(&f.automaxprocs, "automaxprocs", false, deprecated+"ignored, Go heeds the container's limit by itself")
	flags.StringVar(&f.featureGates, "feature-gates", "", deprecated+"ignored, error codes are recorded and the lease is given back")
	flags.Lookup("leader-election-namespace").Annotations = map[string][]string{alsoFrom: {"POD_NAMESPACE"}}
}

// run attaches and detaches until the process is told to end.
func (f *attacherFlags) run(ctx context.Context, cmd *cobra.Command) error {
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	noteDeprecated(cmd.Flags(), log)
	if err := f.check(); err != nil {
		return err
	}
	c, err := f.clients()
	if err != nil {
		return err
	}
	registry := endpoint.NewRegistry()
	c.Log, c.Metrics, c.Status = log, registry, new(attacher.Status)

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends a process that hangs.
	context.AfterFunc(ctx, stop)

	log.Info("started", "csiAddress", f.csiAddress, "leaderElection", f.elect, "version", emulator.Version())
	if f.httpEndpoint == "" {
		return attacher.Run(ctx, c)
	}
	server, err := endpoint.Listen(ctx, endpoint.Config{
		Address: f.httpEndpoint, Metrics: registry, MetricsPath: f.metricsPath, PProf: f.pprof, Log: log,
		Healthy: []endpoint.Check{{Name: "leader-election", Do: func(context.Context) error { return c.Status.Lease() }}},
		Ready:   []endpoint.Check{{Name: "attacher", Do: func(context.Context) error { return c.Status.Ready() }}},
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx) })
	group.Go(func() error { return attacher.Run(ctx, c) })
	return group.Wait()
}

// check refuses what cannot be, as a mistake of the command line.
func (f *attacherFlags) check() error {
	switch {
	case f.metricsAddress != "" && f.httpEndpoint != "":
		return usage("give one of --http-endpoint and --metrics-address")
	case f.metricsAddress != "":
		f.httpEndpoint = f.metricsAddress
	case f.pprof && f.httpEndpoint == "":
		return usage("--enable-pprof needs --http-endpoint")
	}
	switch {
	case f.config.Workers < 1:
		return usage("read --worker-threads: %d is less than 1", f.config.Workers)
	case f.config.Writes < 1:
		return usage("read --writes: %d is less than 1", f.config.Writes)
	case f.config.MaxEntries < 0:
		return usage("read --max-entries: %d is negative: give 0 to leave it to the driver", f.config.MaxEntries)
	case !strings.HasPrefix(f.metricsPath, "/"):
		return usage("read --metrics-path: %q does not begin with /", f.metricsPath)
	}
	if err := driver.CheckAddress(f.csiAddress); err != nil {
		return usage("read --csi-address %q: %w", f.csiAddress, err)
	}
	for name, t := range map[string]time.Duration{
		"timeout": f.config.Timeout, "retry-interval-start": f.config.RetryStart,
		"retry-interval-max": f.config.RetryMax, "grace": f.config.Grace,
	} {
		if t <= 0 {
			return usage("read --%s: %v is not more than 0", name, t)
		}
	}
	return f.checkElection()
}

// podNamespace is where a pod finds its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (f *attacherFlags) checkElection() error {
	if !f.elect {
		return nil
	}
	e := f.election
	if e.LeaseDuration <= e.RenewDeadline || e.RenewDeadline <= e.RetryPeriod*12/10 || e.RetryPeriod <= 0 {
		return usage("the lease is to be renewed in time: --leader-election-lease-duration %v must be longer than --leader-election-renew-deadline %v, and that longer than 1.2 x --leader-election-retry-period %v",
			e.LeaseDuration, e.RenewDeadline, e.RetryPeriod)
	}
	if e.Namespace == "" {
		name, err := os.ReadFile(podNamespace)
		if err != nil || len(name) == 0 {
			return usage("--leader-election needs --leader-election-namespace outside a pod")
		}
		f.election.Namespace = strings.TrimSpace(string(name))
	}
	f.election.Labels = map[string]string{}
	for _, label := range f.labels {
		at := strings.IndexAny(label, ":=")
		if at < 1 {
			return usage("read --leader-election-labels: %q is no label: give KEY:VALUE", label)
		}
		f.election.Labels[label[:at]] = label[at+1:]
	}
	return nil
}

// clients is the configuration with clients: one for the work and one for the lease.
func (f *attacherFlags) clients() (attacher.Config, error) {
	c := f.config
	c.Endpoint, c.DriverName = f.csiAddress, f.driverName
	to := kube.ClientConfig{
		Kubeconfig: f.kubeconfig, QPS: float32(f.qps), Burst: f.burst, UserAgent: "csiemu-attacher/" + emulator.Version(),
	}
	var err error
	if c.Client, err = kube.New(to); err != nil {
		return c, err
	}
	if f.elect {
		election := f.election
		to.QPS = 0
		if election.Client, err = kube.New(to); err != nil {
			return c, fmt.Errorf("for the lease: %w", err)
		}
		c.LeaderElection = &election
	}
	return c, nil
}
