package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/cmd/csiemu/internal/store"
	"github.com/csiemu/csiemu/emulator"
)

const serveText = `Serve the CSI services on an endpoint until SIGTERM or SIGINT.

Volumes that are in use stay as they are when it ends, and are known again by
the next start with the same state directory.

With --admin, csiemu calls, fault and get ask this process, and a browser shows it
at http://ADDRESS. The address is one of this machine only: whoever reaches it may
break volumes.`

const serveExample = `  csiemu serve --endpoint unix:///run/csi.sock --state-dir /var/lib/csiemu
  csiemu serve --endpoint unix:///tmp/csi.sock --backend memory --admin 127.0.0.1:9810
  csiemu serve --endpoint unix:///run/csi.sock --state-dir /var/lib/csiemu \
    --node node-a --node node-b=unix:///run/csi-b.sock --capacity 100GiB --capacity fast=10GiB`

// serveFlags are the flags of serve, as they were given.
type serveFlags struct {
	endpoint, stateDir, backend, driverName string
	nodes, topology, capacity, disable      []string
	services, logLevel                      string
	attachLimit                             int64
	noAttach, sync, strict, volumeCondition bool
	arrayListen, array, secretFile          string
	admin, faultsFile, journalFile          string
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve the CSI services on an endpoint",
		Long:    serveText,
		Example: serveExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context(), cmd) },
	}
	f.define(cmd.Flags())
	return cmd
}

// define defines the flags, in the order in which --help shows them.
func (f *serveFlags) define(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.endpoint, "endpoint", "", "where to serve, unix://PATH.sock (also CSI_ENDPOINT)")
	flags.StringVar(&f.stateDir, "state-dir", "", "directory of records and volumes; only --backend memory can do without")
	flags.StringVar(&f.backend, "backend", store.Default(), "how bytes are kept: "+strings.Join(store.Names(), ", "))
	flags.StringVar(&f.driverName, "driver-name", "", "name of the driver (default BACKEND.csiemu.dev)")
	flags.StringSliceVar(&f.nodes, "node", nil, "`NAME` of a node to serve; each further one with a socket of its own, as in NAME=unix://PATH.sock (default the host's name)")
	flags.StringVar(&f.services, "services", string(emulator.AllServices), "what to serve: all, controller, node")
	flags.StringSliceVar(&f.capacity, "capacity", nil, "`SIZE` of the default pool, or POOL=SIZE of a named one; repeat for more (default 100GiB)")
	flags.Int64Var(&f.attachLimit, "attach-limit", 0, "most volumes attached to one node; 0 means no limit")
	flags.BoolVar(&f.noAttach, "no-attach", false, "be a driver without ControllerPublishVolume")
	flags.StringSliceVar(&f.topology, "topology", nil, "`SEGMENT` of every node's topology, as in KEY=VALUE; repeat for more")
	flags.StringSliceVar(&f.disable, "disable", nil, "capability to do without, as in EXPAND_VOLUME; repeat for more")
	flags.BoolVar(&f.volumeCondition, "volume-condition", false, "also tell the health of volumes as CSI did before 1.13")
	flags.BoolVar(&f.sync, "sync", false, "flush records and bytes, so that they survive a lost machine too")
	flags.BoolVar(&f.strict, "strict", false, "refuse maps past their limit, and any second call on a volume (ABORTED)")
	flags.StringVar(&f.admin, "admin", "", "`ADDRESS` of an admin endpoint with a page, loopback HOST:PORT or unix://PATH (default none)")
	flags.StringVar(&f.faultsFile, "faults", "", "`FILE` of faults to begin with, one a line; # begins a comment")
	flags.StringVar(&f.journalFile, "journal", "", "`FILE` to which each call is added as a line of JSON")
	flags.StringVar(&f.logLevel, "log-level", "info", "least level to log: debug, info, warn, error")
	flags.StringVar(&f.arrayListen, "array-listen", "", "where nodes of other processes find this array, unix://PATH.sock or tcp://HOST:PORT")
	flags.StringVar(&f.array, "array", "", "the array that this node belongs to (with --services node)")
	flags.StringVar(&f.secretFile, "secret-file", "", "file whose bytes array and nodes share to trust each other")
	flags.Lookup("endpoint").Annotations = map[string][]string{alsoFrom: {"CSI_ENDPOINT"}}
}

// serve is the command: it makes the emulator that the flags describe, and
// serves until the process is told to end.
func (f *serveFlags) serve(ctx context.Context, cmd *cobra.Command) (err error) {
	config, err := f.config()
	if err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return usage("read --log-level: %q is no level: give debug, info, warn or error", f.logLevel)
	}
	faults, err := readFaults(f.faultsFile)
	if err != nil {
		return err
	}
	config.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))

	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends a process that hangs.
	context.AfterFunc(ctx, stop)

	// The endpoints come first: where one is in use, nothing is made.
	listeners, err := emulator.Listen(ctx, config.Endpoints(f.endpoint)...)
	if err != nil {
		return blame(err)
	}
	defer func() {
		if err != nil {
			_ = listeners.Close()
		}
	}()
	adminListener, err := f.listenAdmin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && adminListener != nil {
			_ = adminListener.Close()
		}
	}()
	endJournal, err := f.openJournal(&config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endJournal()) }()
	config.Backend, err = store.New(ctx, f.backend, store.Options{Dir: f.stateDir, Sync: f.sync})
	if err != nil {
		return err
	}
	emu, err := emulator.New(ctx, config)
	if err != nil {
		return blame(err)
	}
	defer func() {
		if closed := emu.Close(); err == nil {
			err = closed
		}
		config.Log.Info("ended, volumes in use stay", "driver", config.Profile.DriverName)
	}()
	if err := injectAll(ctx, emu, faults); err != nil {
		return err
	}
	config.Log.Info("started", "driver", config.Profile.DriverName, "backend", f.backend, "stateDir", f.stateDir,
		"nodes", nodeNames(config), "version", emulator.Version())
	return f.serveAll(ctx, emu, config, listeners, adminListener)
}

// nodeNames are the names of the nodes that an emulator serves, with commas.
func nodeNames(c emulator.Config) string {
	var names []string
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	if len(names) == 0 && c.Services != emulator.ControllerService {
		host, err := os.Hostname() // as the emulator names it
		if err == nil {
			names = []string{host}
		}
	}
	return strings.Join(names, ",")
}

// blame makes a configuration that the emulator refuses a mistake of the command
// line.
func blame(err error) error {
	if errors.Is(err, backends.ErrInvalid) {
		return usageError{err}
	}
	return err
}
