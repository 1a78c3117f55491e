package emulator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/node"
)

func (s *controllerServer) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := s.array.Volume(req.GetVolumeId())
	if err != nil {
		return nil, fmt.Errorf("get the health: %w", err)
	}
	conditions, err := s.array.Health(ctx, v)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthMessage(v.ID, conditions)}, nil
}

func (s *controllerServer) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	sick, next, err := s.array.ListHealth(ctx, req.GetStartingToken(), int(req.GetMaxEntries()))
	if err != nil {
		return nil, fmt.Errorf("list the health of volumes: %w", err)
	}
	resp := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range sick {
		resp.Entries = append(resp.Entries, healthMessage(v.ID, v.Conditions))
	}
	return resp, nil
}

func (s *nodeServer) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	conditions, err := s.node.Health(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: healthMessage(req.GetVolumeId(), conditions)}, nil
}

func (s *nodeServer) NodeGetStorageHealth(ctx context.Context, _ *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	resp := &csi.NodeGetStorageHealthResponse{}
	for _, c := range s.node.StorageHealth(ctx) {
		resp.BackendHealth = append(resp.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType(csi.StorageHealthErrorType_value[string(c.Status)]), Reason: c.Reason, Message: cutString(c.Message),
		})
	}
	return resp, nil
}

// cutString keeps a text, as that of an error, within CSI's limit for strings.
func cutString(text string) string {
	const limit = 128 // bytes ("Size Limits")
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}

// healthMessage puts conditions into CSI's words.
func healthMessage(volumeID string, conditions []backends.Condition) *csi.VolumeHealth {
	m := &csi.VolumeHealth{VolumeId: volumeID}
	for _, c := range conditions {
		m.HealthStatuses = append(m.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: csi.VolumeHealthErrorType(csi.VolumeHealthErrorType_value[string(c.Status)]), Reason: c.Reason, Message: cutString(c.Message),
		})
	}
	return m
}

// describe says in one line what is wrong, for what has no more room.
func describe(conditions []backends.Condition) string {
	var all []string
	for _, c := range conditions {
		text := fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		if c.Message != "" {
			text += ": " + c.Message
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// SetVolumeHealth makes the controller report that something is wrong with a
// volume, in place of what was set before; no conditions make it healthy again.
// What the backend sees by itself is reported besides. The conditions are part of
// the volume's record. backends.ErrNotFound and backends.ErrInvalid are returned.
func (e *Emulator) SetVolumeHealth(ctx context.Context, volumeID string, conditions ...backends.Condition) error {
	if e.array == nil {
		return fmt.Errorf("set the health of volume %s: this process serves no controller: %w", volumeID, backends.ErrPrecondition)
	}
	return e.array.SetHealth(ctx, volumeID, conditions)
}

// SetNodeVolumeHealth is SetVolumeHealth for what one node of this process reports
// (NodeGetVolumeHealth). It lasts as long as the process.
func (e *Emulator) SetNodeVolumeHealth(nodeName, volumeID string, conditions ...backends.Condition) error {
	n, err := e.nodeNamed(nodeName)
	if err != nil {
		return fmt.Errorf("set the health of volume %s: %w", volumeID, err)
	}
	return n.SetHealth(volumeID, conditions)
}

// SetStorageHealth makes one node of this process report that something is wrong
// with its storage (NodeGetStorageHealth), until it is called without conditions.
// Their status is node.StorageDegraded or node.StorageUnreachable.
func (e *Emulator) SetStorageHealth(nodeName string, conditions ...backends.Condition) error {
	n, err := e.nodeNamed(nodeName)
	if err != nil {
		return fmt.Errorf("set the health of the storage: %w", err)
	}
	return n.SetStorageHealth(conditions)
}

func (e *Emulator) nodeNamed(name string) (*node.Node, error) {
	i := slices.IndexFunc(e.nodes, func(n *nodeServer) bool { return n.config.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("node %q is not served by this process: %w", name, backends.ErrNotFound)
	}
	return e.nodes[i].node, nil
}
