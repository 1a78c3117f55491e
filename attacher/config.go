package attacher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// Defaults of Config. The times are those of external-attacher.
const (
	DefaultTimeout         = 15 * time.Second
	DefaultWorkers         = 1000
	DefaultWrites          = 64
	DefaultWriteTimeout    = 30 * time.Second
	DefaultRetryStart      = time.Second
	DefaultRetryMax        = 5 * time.Minute
	DefaultResync          = 10 * time.Minute
	DefaultReconcilePeriod = time.Minute
	DefaultGrace           = 20 * time.Second
)

// Config is what Run works with. Client and one of Conn and Endpoint are needed;
// everything else has a useful zero value.
type Config struct {
	// Client reaches the API server. It should not limit its rate: a limit of 5
	// requests a second makes it 1.7 attaches a second.
	Client kubernetes.Interface
	// Conn is a connection to the driver, which stays the caller's.
	Conn grpc.ClientConnInterface
	// Endpoint is where to connect to the driver without Conn: a path,
	// unix://PATH or tcp://HOST:PORT.
	Endpoint string
	// DriverName is what the driver must be called; "" takes its word.
	DriverName string
	// Timeout bounds each call of the driver, and of nothing else.
	Timeout time.Duration
	// Workers is how many attaches may be under way at once, and how many
	// detaches. Most of them wait for the driver, so there can be many.
	Workers int
	// Writes is how many writes to the API server may be under way at once.
	Writes int
	// WriteTimeout bounds each request to the API server.
	WriteTimeout time.Duration
	// RetryStart is how long a VolumeAttachment waits after its first failure. It
	// doubles with each further one, up to RetryMax.
	RetryStart, RetryMax time.Duration
	// Resync is how often everything is looked at again; negative means never.
	Resync time.Duration
	// ReconcilePeriod is how often VolumeAttachments are compared with what
	// ListVolumes says, of drivers that can say it; negative means never. A
	// comparison may take as long as the period, and at least Timeout.
	ReconcilePeriod time.Duration
	// MaxEntries is the length of a page of ListVolumes; 0 leaves it to the driver.
	MaxEntries int
	// DefaultFSType is the file system of PersistentVolumes that name none.
	DefaultFSType string
	// Strict makes the same writes in the same order as external-attacher: no
	// annotation of the volume handle, a second write after each detach, errors
	// written each time.
	Strict bool
	// Grace is how long calls under way may take after ctx ended. Those that take
	// longer are cancelled; the next start does them again.
	Grace time.Duration
	// LeaderElection, unless nil, works only while it holds a Lease.
	LeaderElection *LeaderElection
	// Status, unless nil, tells how it goes.
	Status *Status
	// Metrics is where the metrics are registered; nil counts nothing.
	Metrics prometheus.Registerer
	// Log gets what happens; nil logs nothing.
	Log *slog.Logger
}

// LeaderElection is how one of several attachers of a driver is elected, by the
// Lease that external-attacher uses, so that it and this one exclude each other.
type LeaderElection struct {
	// Client is one of its own, so that work never delays a renewal; nil takes
	// that of the Config.
	Client kubernetes.Interface
	// Namespace is the Lease's.
	Namespace string
	// Identity is this process's; "" is the host's name.
	Identity string
	// LeaseDuration, RenewDeadline and RetryPeriod are 15 s, 10 s and 5 s if 0.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Labels are put on the Lease.
	Labels map[string]string
}

// lease is the Lease of a driver. Status watches over it with the 20 s of slack
// that the field gives.
func (l LeaderElection) lease(driver string, c Config) kube.LeaseConfig {
	client := l.Client
	if client == nil {
		client = c.Client
	}
	health := leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
	c.Status.lease(health)
	return kube.LeaseConfig{
		Leases: client.CoordinationV1(), Namespace: l.Namespace,
		Name: sanitized("external-attacher-leader-" + driver), Identity: sanitized(l.Identity),
		Duration:      cmp.Or(l.LeaseDuration, 15*time.Second),
		RenewDeadline: cmp.Or(l.RenewDeadline, 10*time.Second),
		RetryPeriod:   cmp.Or(l.RetryPeriod, 5*time.Second),
		Labels:        l.Labels, Health: health, Metrics: c.Metrics,
	}
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Client == nil:
		return c, errors.New("the configuration has no Client")
	case c.Conn == nil && c.Endpoint == "":
		return c, errors.New("the configuration has neither Conn nor Endpoint")
	case c.Conn != nil && c.Endpoint != "":
		return c, errors.New("the configuration has both Conn and Endpoint: give one of them")
	case c.Workers < 0 || c.Writes < 0:
		return c, errors.New("the configuration has a negative number of Workers or Writes")
	case c.MaxEntries < 0 || c.MaxEntries > math.MaxInt32:
		return c, fmt.Errorf("the configuration has MaxEntries %d: give 0 to %d", c.MaxEntries, math.MaxInt32)
	}
	for _, t := range []struct {
		is   *time.Duration
		when time.Duration
	}{
		{&c.Timeout, DefaultTimeout},
		{&c.WriteTimeout, DefaultWriteTimeout},
		{&c.RetryStart, DefaultRetryStart},
		{&c.RetryMax, DefaultRetryMax},
		{&c.Resync, DefaultResync},
		{&c.ReconcilePeriod, DefaultReconcilePeriod},
		{&c.Grace, DefaultGrace},
	} {
		*t.is = cmp.Or(*t.is, t.when)
	}
	if min(c.Timeout, c.WriteTimeout, c.RetryStart, c.RetryMax, c.Grace) < 0 {
		return c, errors.New("the configuration has a negative time: only Resync and ReconcilePeriod may be negative")
	}
	c.Workers, c.Writes = cmp.Or(c.Workers, DefaultWorkers), cmp.Or(c.Writes, DefaultWrites)
	c.Resync = max(c.Resync, 0) // negative: never
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Status == nil {
		c.Status = new(Status)
	}
	var err error
	c.LeaderElection, err = c.LeaderElection.withDefaults()
	return c, err
}

// withDefaults is the election with an identity; those of nil are nil.
func (l *LeaderElection) withDefaults() (*LeaderElection, error) {
	if l == nil {
		return nil, nil
	}
	election := *l
	if election.Namespace == "" {
		return nil, errors.New("the leader election has no Namespace")
	}
	if election.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("identify this process by the host's name: %w", err)
		}
		election.Identity = host
	}
	return &election, nil
}
