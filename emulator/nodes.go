package emulator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/emulator/node"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// openNodes opens every node of this process.
func (e *Emulator) openNodes(ctx, background context.Context) error {
	for _, c := range e.config.Nodes {
		if err := e.openNode(ctx, background, c); err != nil {
			return fmt.Errorf("node %s: %w", c.Name, err)
		}
	}
	return nil
}

func (e *Emulator) openNode(ctx, background context.Context, c Node) error {
	s := &nodeServer{profile: e.profile, config: c, locks: rpc.NewLocks()}
	if e.config.StateDir != "" {
		var err error
		if s.stateDir, err = filepath.Abs(e.config.StateDir); err != nil {
			return err
		}
	}
	e.nodes = append(e.nodes, s)
	if e.array != nil {
		if err := e.openNodeHalf(ctx, s, e.array); err != nil {
			return err
		}
		return e.array.SetNode(ctx, e.knownNode(c.Name, e.profile.topologyOf(c)))
	}
	client, err := e.dialArray(c)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, client.Close)
	e.remote = client
	if err := e.openNodeHalf(ctx, s, client); err != nil {
		return err
	}
	e.background.Go(func() {
		if err := client.Run(background, s.node); err != nil {
			e.log.ErrorContext(background, "the array is not asked any more", "error", err)
		}
	})
	return nil
}

// openNodeHalf opens the records and the backend's half of a node.
func (e *Emulator) openNodeHalf(ctx context.Context, s *nodeServer, of node.Array) error {
	dir := e.nodeDir(s.config.Name)
	stage := e.stageDir(dir)
	devices := ""
	if dir != "" {
		devices = filepath.Join(dir, "devices")
		if err := os.MkdirAll(devices, 0o700); err != nil {
			return err
		}
	}
	store, err := e.openStore(dir)
	if err != nil {
		return err
	}
	half, err := e.config.Backend.Node(backends.NodeConfig{Dir: devices, Sync: e.config.Sync})
	if err != nil {
		_ = store.Close()
		return err
	}
	s.node, err = node.Open(ctx, node.Options{
		Name: s.config.Name, Backend: half, Array: of, Store: store, StageDir: stage,
		Attaches: e.profile.attaches(), Stages: e.profile.stages(), SharedSingleNode: e.profile.SharedSingleNode,
		Lock: s.locks.Volume, Log: e.log,
	})
	if err != nil {
		_, _ = half.Close(), store.Close()
		return err
	}
	e.undo = append(e.undo, s.node.Close)
	return nil
}

// nodeDir is where a node keeps its own: the state directory of a process that
// is one node, a directory below it where the array lives there too.
func (e *Emulator) nodeDir(name string) string {
	if e.config.StateDir == "" || e.config.Services == NodeService {
		return e.config.StateDir
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(e.config.StateDir, "node", hex.EncodeToString(sum[:8]))
}

func (e *Emulator) knownNode(name string, topology map[string]string) array.Node {
	return array.Node{ID: name, Topology: topology, MaxVolumes: e.profile.MaxVolumesPerNode}
}
