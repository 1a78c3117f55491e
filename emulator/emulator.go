package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/internal/record"
	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/lifecycle"
)

// Emulator is a running storage system: an array, its nodes, or both. It is
// safe for concurrent use.
type Emulator struct {
	config  Config
	profile *Profile
	log     *slog.Logger
	locks   *rpc.Locks
	array   *array.Array
	nodes   []*nodeServer
	links   *link.Server
	// journal, faults and checker see the calls; checker is nil where it is off.
	journal     *journal.Journal
	faults      *fault.Injector
	checker     *lifecycle.Checker
	unready     unready
	broken      broken
	classFaults classFaults
	// remote is the array of another process, which hears of all calls; nil where
	// the array is here.
	remote *link.Client
	// untold is true while the array does not hear of calls.
	untold atomic.Bool
	crash  func(step string)
	// background ends with cancel; close runs what New acquired, last first.
	background sync.WaitGroup
	cancel     context.CancelFunc
	undo       []func() error
	closeOnce  sync.Once
	closeErr   error
}

// New opens the state directory, brings the world to what its records say, and
// connects array and nodes. Nothing is served yet: see Serve and Register.
// When New fails nothing is left open, and the backend is closed.
func New(ctx context.Context, c Config) (*Emulator, error) {
	if c.Backend == nil {
		return nil, fmt.Errorf("start emulator: no backend is given: %w", backends.ErrInvalid)
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e := &Emulator{cancel: cancel, locks: rpc.NewLocks(), undo: []func() error{c.Backend.Close}}
	if err := e.open(ctx, background, c); err != nil {
		return nil, fmt.Errorf("start emulator: %w", errors.Join(err, e.Close()))
	}
	return e, nil
}

func (e *Emulator) open(ctx, background context.Context, c Config) error {
	var err error
	if e.config, err = c.withDefaults(); err != nil {
		return err
	}
	e.profile, e.log = e.config.Profile, e.config.Log
	e.journal, e.crash = e.config.Journal, e.config.Crash
	e.faults = fault.NewInjector(fault.Options{Seed: e.config.Seed})
	// A node alone sees half of the calls; its array checks them.
	if e.config.CheckCaller && e.config.Services != NodeService {
		e.checker = lifecycle.New(lifecycle.Options{
			Attaches: e.profile.attaches(), Stages: e.profile.stages(), MinBackoff: e.config.MinBackoff,
			Online:       slices.Contains(e.profile.Expansion, csi.PluginCapability_VolumeExpansion_ONLINE),
			EphemeralKey: ephemeralKey, TokensKey: tokensKey,
		})
	}
	if e.config.Services != NodeService {
		if err := e.openArray(ctx, background); err != nil {
			return err
		}
	}
	if e.config.Services != ControllerService {
		if err := e.openNodes(ctx, background); err != nil {
			return err
		}
	}
	if e.array != nil {
		e.log.InfoContext(ctx, "found", "volumes", len(e.array.Volumes()), "snapshots", len(e.array.Snapshots()),
			"attachments", len(e.Attachments()), "mounts", len(e.Mounts()))
	}
	return nil
}

// Close ends the emulator and waits for it; volumes stay as they are, unless
// the backend was made to leave nothing behind. Servers have to be stopped
// before. It may be called more than once.
func (e *Emulator) Close() error {
	e.closeOnce.Do(func() {
		e.cancel()
		e.background.Wait()
		for _, f := range slices.Backward(e.undo) {
			e.closeErr = errors.Join(e.closeErr, f())
		}
	})
	return e.closeErr
}

func (e *Emulator) openArray(ctx, background context.Context) error {
	store, err := e.openStore(e.config.StateDir)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, store.Close)
	e.array, err = array.Open(ctx, array.Options{
		Backend: e.config.Backend, Store: store, Pools: e.config.Pools, DefaultPool: e.config.defaultPool(),
		NodeTopologyKey: e.profile.NodeTopologyKey, Topology: e.profile.plugin(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		Holder: e, Lock: e.locks.Volume, Connected: e.breakConnected, Log: e.log,
	})
	if err != nil {
		return err
	}
	// Faults end with the emulator, its volumes don't.
	e.undo = append(e.undo, func() error { return e.ClearFaults(context.WithoutCancel(ctx)) })
	if err := e.recallClasses(ctx); err != nil {
		return err
	}
	if e.config.Link.Listen == "" {
		return nil
	}
	return e.listenForNodes(background)
}

// openStore opens the records below dir; without a dir they live in memory.
func (e *Emulator) openStore(dir string) (record.Store, error) {
	if dir == "" {
		return record.NewMemory(), nil
	}
	store, err := record.Open(dir, record.Options{Sync: e.config.Sync})
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Journal is the record of the calls.
func (e *Emulator) Journal() *journal.Journal { return e.journal }

// Findings are what the checker of the caller has found lately; none without
// Config.CheckCaller.
func (e *Emulator) Findings() []lifecycle.Finding {
	if e.checker == nil {
		return nil
	}
	return e.checker.Findings()
}

// Hold reaches a node of this process or one that is connected: see
// array.Holder.
func (e *Emulator) Hold(ctx context.Context, nodeID, volumeID string, exact bool) (func(context.Context) error, error) {
	for _, n := range e.nodes {
		if n.config.Name == nodeID {
			return n.node.Hold(ctx, volumeID, exact)
		}
	}
	if e.links != nil {
		return e.links.Hold(ctx, nodeID, volumeID, exact)
	}
	return nil, fmt.Errorf("node %s is not served by this process: %w", nodeID, backends.ErrUnavailable)
}

// Register registers all services of one node on s, and those of the array if
// the node is the first or the name is empty. The caller serves and stops s,
// before Close.
func (e *Emulator) Register(nodeName string, s grpc.ServiceRegistrar) error {
	i := slices.IndexFunc(e.nodes, func(n *nodeServer) bool { return n.config.Name == nodeName })
	if nodeName == "" && len(e.nodes) > 0 {
		i = 0
	}
	if i < 0 && (nodeName != "" || e.array == nil) {
		return fmt.Errorf("serve node %q: the emulator has no such node: %w", nodeName, backends.ErrNotFound)
	}
	o := rpc.Options{
		Log: e.log, Strict: e.config.Strict, StrictLocks: e.config.StrictLocks, Enabled: e.profile.enabled, Locks: e.locks, Members: e.members,
		Around:  []rpc.Step{e.observe, e.tell, e.breakClass, e.breakNew},
		Checked: []rpc.Step{e.obey, e.supervise, e.inject, e.authorize},
		Finding: func(ctx context.Context, f rpc.Finding) {
			entryOf(ctx).Find(f.String())
			e.log.WarnContext(ctx, "a request breaks a limit of the specification", "what", f.String())
		},
	}
	controller := rpc.Registrar(s, o)
	csi.RegisterIdentityServer(controller, &identityServer{profile: e.profile})
	if e.array != nil && i <= 0 {
		csi.RegisterControllerServer(controller, &controllerServer{profile: e.profile, array: e.array})
		csi.RegisterGroupControllerServer(controller, &groupServer{profile: e.profile, array: e.array})
		csi.RegisterSnapshotMetadataServer(controller, &metadataServer{array: e.array})
	}
	if i >= 0 {
		// A node's calls have locks of their own: a snapshot, which locks the
		// volume in the array, waits for the node to hold it.
		o.Node, o.Locks = e.nodes[i].config.Name, e.nodes[i].locks
		csi.RegisterNodeServer(rpc.Registrar(s, o), e.nodes[i])
	}
	return nil
}

// members are the ids of a group's snapshots, for locks.
func (e *Emulator) members(groupSnapshotID string) []string {
	if e.array == nil {
		return nil
	}
	return e.array.Members(groupSnapshotID)
}

// stageDir makes, when it is first asked for, the directory for volumes that
// nobody stages; without a state directory it is a temporary one that goes with
// the emulator.
func (e *Emulator) stageDir(nodeDir string) func() (string, error) {
	if nodeDir != "" {
		dir := filepath.Join(nodeDir, "stage")
		return sync.OnceValues(func() (string, error) { return dir, os.MkdirAll(dir, 0o700) })
	}
	var made atomic.Pointer[string]
	e.undo = append(e.undo, func() error {
		if dir := made.Load(); dir != nil {
			return os.RemoveAll(*dir)
		}
		return nil
	})
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "csiemu-stage-")
		if err == nil {
			made.Store(&dir)
		}
		return dir, err
	})
}
