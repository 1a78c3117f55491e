package registrar

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"

	"github.com/csiemu/csiemu/internal/role/endpoint"
)

// ErrConfig is returned when a Config cannot be.
var ErrConfig = errors.New("wrong configuration")

// ErrNotSocket is returned when something that is no socket is where the
// registration socket has to be. It is never removed.
var ErrNotSocket = errors.New("not a socket")

// DefaultTimeout bounds calls of the driver's identity, as in node-driver-registrar.
const DefaultTimeout = time.Second

// Config says which driver is registered, and with whom.
type Config struct {
	// CSIAddress is the driver's endpoint as this process reaches it: a path,
	// unix://PATH or tcp://HOST:PORT.
	CSIAddress string
	// Conn is a connection to the driver in place of CSIAddress. It stays the
	// caller's.
	Conn grpc.ClientConnInterface

	// KubeletRegistrationPath is the driver's endpoint as the kubelet reaches it,
	// a path on the host. PluginRegistrationPath is the directory of the
	// registration socket, plugins_registry below the kubelet's root. Both are
	// needed without Direct.
	KubeletRegistrationPath, PluginRegistrationPath string

	// Direct registers the driver with the API server, without a kubelet.
	Direct *Direct
	// CSIDriver keeps the driver's CSIDriver object.
	CSIDriver *CSIDriver
	// Client is the API server, for Direct and CSIDriver.
	Client kubernetes.Interface

	// Timeout bounds each call of the driver's identity; 0 means DefaultTimeout.
	// NodeGetInfo has two minutes, as the kubelet gives it.
	Timeout time.Duration
	// HTTPEndpoint is where /healthz, /readyz and /metrics are served: HOST:PORT or
	// unix://PATH. "" serves none. PProf adds /debug/pprof/.
	HTTPEndpoint string
	PProf        bool
	// Metrics gets the registrar's metrics and is what /metrics shows; nil means
	// a registry of its own.
	Metrics *prometheus.Registry
	// OnState gets each change of the state, in order. It must not wait, and must
	// not call the registrar.
	OnState func(State)
	// Log gets what happens; nil logs nothing.
	Log *slog.Logger
}

// Direct is registration without a kubelet.
type Direct struct {
	// NodeName is the Node object that the driver's node service belongs to. It
	// may be made later, and deleted and made anew.
	NodeName string
	// LegacyLimits also writes the volume limit into the Node's status.capacity and
	// status.allocatable, as kubelets before 1.17 did.
	LegacyLimits bool
	// MigratedPlugins are the in-tree plugins that the CSINode's annotation says are
	// migrated to CSI; nil means those of a kubelet 1.37.
	MigratedPlugins []string
}

func (c Config) check() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("run the registrar: %w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case c.CSIAddress == "" && c.Conn == nil:
		return wrong("no driver: give CSIAddress or Conn")
	case c.CSIAddress != "" && c.Conn != nil:
		return wrong("two drivers: give one of CSIAddress and Conn")
	case c.Direct == nil && c.KubeletRegistrationPath == "":
		return wrong("KubeletRegistrationPath is empty: give the driver's socket as the kubelet sees it, or Direct")
	case c.Direct == nil && c.PluginRegistrationPath == "":
		return wrong("PluginRegistrationPath is empty: give the directory plugins_registry of the kubelet, or Direct")
	case c.Direct != nil && c.KubeletRegistrationPath+c.PluginRegistrationPath != "":
		return wrong("both a kubelet and Direct: a node is registered by one of them")
	case c.Direct != nil && c.Direct.NodeName == "":
		return wrong("Direct.NodeName is empty: give the name of the Node object")
	case c.Client == nil && (c.Direct != nil || c.CSIDriver != nil):
		return wrong("no Client: Direct and CSIDriver need an API server")
	case c.Timeout < 0:
		return wrong("Timeout %v is negative", c.Timeout)
	}
	if c.CSIDriver != nil {
		if err := c.CSIDriver.check(); err != nil {
			return wrong("%v", err)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Metrics == nil {
		c.Metrics = endpoint.NewRegistry()
	}
	if c.Direct != nil && c.Direct.MigratedPlugins == nil {
		own := *c.Direct
		own.MigratedPlugins = migratedPlugins()
		c.Direct = &own
	}
	return c
}
