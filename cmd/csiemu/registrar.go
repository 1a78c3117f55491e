package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/kube"
	"github.com/csiemu/csiemu/registrar"
)

const registrarText = `Register a CSI driver with the kubelet, until SIGTERM or SIGINT; the registration
socket is removed then. It takes the flags of node-driver-registrar and works with
any driver. A driver or a kubelet that is not there yet is waited for without limit.

With --direct there is no kubelet: the CSINode entry, the Node's annotation, topology
labels and the volume limit are written to the API server, and taken back at the end.`

const registrarExample = `  csiemu registrar --csi-address /csi/csi.sock \
    --kubelet-registration-path /var/lib/kubelet/plugins/loop.csiemu.dev/csi.sock
  csiemu registrar --csi-address /csi/csi.sock --direct --node-name node-1 --kubeconfig ~/.kube/config`

// registrarFlags are the flags of registrar.
type registrarFlags struct {
	csiAddress, kubeletPath, pluginPath string
	timeout                             time.Duration
	httpEndpoint                        string
	healthPort                          int
	pprof                               bool
	direct, legacyLimits                bool
	kubeconfig, nodeName                string
	object                              registrar.CSIDriver
	keepObject                          bool
	log                                 logFlags

	// Deprecated ones.
	mode              string
	connectionTimeout time.Duration
	automaxprocs      bool
}

// probeMode is the value of --mode that older manifests have in an exec probe.
const probeMode = "kubelet-registration-probe"

func newRegistrar() *cobra.Command {
	var f registrarFlags
	cmd := &cobra.Command{
		Use:     "registrar",
		Short:   "Register a CSI driver with the kubelet, or with the API server",
		Long:    registrarText,
		Example: registrarExample,
		Version: emulator.Version(),
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd) },
	}
	f.define(cmd.Flags())
	return cmd
}

// define defines the flags, in the order in which --help shows them.
func (f *registrarFlags) define(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.csiAddress, "csi-address", "/run/csi/socket", "the driver's endpoint as this process sees it: a path, unix://PATH or tcp://HOST:PORT")
	flags.StringVar(&f.kubeletPath, "kubelet-registration-path", "", "the driver's socket as the kubelet sees it, a `PATH` on the host (needed without --direct)")
	flags.StringVar(&f.pluginPath, "plugin-registration-path", "/registration", "`DIRECTORY` of the registration socket, plugins_registry below the kubelet's root")
	flags.DurationVar(&f.timeout, "timeout", registrar.DefaultTimeout, "how long the driver may take to tell its name")
	flags.StringVar(&f.httpEndpoint, "http-endpoint", "", "`ADDRESS` of /healthz, /readyz and /metrics, HOST:PORT or unix://PATH (default none)")
	flags.BoolVar(&f.pprof, "enable-pprof", false, "also serve /debug/pprof/ there")
	flags.BoolVar(&f.direct, "direct", false, "register with the API server, for nodes without a kubelet")
	flags.StringVar(&f.nodeName, "node-name", "", "`NAME` of the Node object (with --direct; also NODE_NAME)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server (default the pod's service account)")
	flags.BoolVar(&f.legacyLimits, "legacy-limits", false, "also write the volume limit into the Node's status, as kubelets before 1.17 did (with --direct)")
	flags.BoolVar(&f.keepObject, "csidriver-object", false, "make and keep the CSIDriver object, from what the driver can do")
	flags.StringSliceVar(&f.object.LifecycleModes, "csidriver-lifecycle-modes", nil, "its volumeLifecycleModes: Persistent, Ephemeral (default Persistent)")
	flags.BoolVar(&f.object.PodInfo, "csidriver-pod-info", false, "its podInfoOnMount")
	flags.StringVar(&f.object.FSGroupPolicy, "csidriver-fs-group-policy", "", "its fsGroupPolicy: File, None, ReadWriteOnceWithFSType (default by VOLUME_MOUNT_GROUP)")
	flags.DurationVar(&f.object.UpdatePeriod, "csidriver-update-period", 0, "its nodeAllocatableUpdatePeriodSeconds, at least 10s; 0 means none")
	flags.BoolVar(&f.object.DeleteAtEnd, "csidriver-delete", false, "delete it at the end, for a registrar that is the only one")
	f.log.define(flags)
	flags.IntVar(&f.healthPort, "health-port", 0, deprecated+"`PORT` of --http-endpoint on all addresses")
	flags.StringVar(&f.mode, "mode", "", deprecated+probeMode+" ends at once with status 0")
	flags.DurationVar(&f.connectionTimeout, "connection-timeout", 0, deprecated+"ignored, the driver is waited for without limit")
	flags.BoolVar(&f.automaxprocs, "automaxprocs", false, deprecated+"ignored, Go heeds the container's limit by itself")
	flags.Lookup("node-name").Annotations = map[string][]string{alsoFrom: {"NODE_NAME"}}
}

// run registers until the process is told to end.
func (f *registrarFlags) run(ctx context.Context, cmd *cobra.Command) error {
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	noteDeprecated(cmd.Flags(), log)
	switch f.mode {
	case "", "registration":
	case probeMode:
		return nil
	default:
		return usage("read --mode: %q is no mode: leave it out", f.mode)
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	config.Log = log
	if f.direct || f.keepObject {
		config.Client, err = kube.New(kube.ClientConfig{Kubeconfig: f.kubeconfig, UserAgent: "csiemu-registrar/" + emulator.Version()})
		if err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends a process that hangs.
	context.AfterFunc(ctx, stop)

	log.Info("started", "csiAddress", f.csiAddress, "direct", f.direct, "version", emulator.Version())
	err = registrar.Run(ctx, config)
	if errors.Is(err, registrar.ErrConfig) {
		return usageError{err}
	}
	if err == nil {
		log.Info("ended")
	}
	return err
}

// config is what the flags say, but for the log and the client.
func (f *registrarFlags) config() (registrar.Config, error) {
	c := registrar.Config{CSIAddress: f.csiAddress, Timeout: f.timeout, HTTPEndpoint: f.httpEndpoint, PProf: f.pprof}
	switch {
	case f.healthPort != 0 && f.httpEndpoint != "":
		return c, usage("give one of --http-endpoint and --health-port")
	case f.healthPort < 0 || f.healthPort > 65535:
		return c, usage("read --health-port: %d is no port", f.healthPort)
	case f.healthPort != 0:
		c.HTTPEndpoint = ":" + strconv.Itoa(f.healthPort)
	case f.pprof && f.httpEndpoint == "":
		return c, usage("--enable-pprof needs --http-endpoint")
	}
	if err := driver.CheckAddress(f.csiAddress); err != nil {
		return c, usage("read --csi-address %q: %w", f.csiAddress, err)
	}
	switch {
	case f.timeout <= 0:
		return c, usage("read --timeout: %v is not more than 0", f.timeout)
	case f.direct && f.kubeletPath != "":
		return c, usage("give one of --direct and --kubelet-registration-path: a node is registered by one of them")
	case f.direct && f.nodeName == "":
		return c, usage("--direct needs --node-name, the name of the Node object")
	case f.direct:
		c.Direct = &registrar.Direct{NodeName: f.nodeName, LegacyLimits: f.legacyLimits}
	case f.legacyLimits:
		return c, usage("--legacy-limits needs --direct")
	case f.kubeletPath == "":
		return c, usage("give --kubelet-registration-path, the driver's socket as the kubelet sees it, or --direct")
	case !filepath.IsAbs(f.kubeletPath):
		return c, usage("read --kubelet-registration-path: %q is relative: give the path from the root of the kubelet's host", f.kubeletPath)
	default:
		c.KubeletRegistrationPath, c.PluginRegistrationPath = f.kubeletPath, f.pluginPath
	}
	if f.object.DeleteAtEnd && !f.keepObject {
		return c, usage("--csidriver-delete needs --csidriver-object")
	}
	if f.keepObject {
		c.CSIDriver = &f.object
	}
	return c, nil
}
