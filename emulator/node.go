package emulator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/node"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// nodeServer is CSI's Node service for one node; see controllerServer.
type nodeServer struct {
	csi.UnimplementedNodeServer
	profile *Profile
	config  Node
	node    *node.Node
	// stateDir is the directory of this process, absolute; empty if there is
	// none.
	stateDir string
	// locks order the calls of this node.
	locks *rpc.Locks
}

func (s *nodeServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range s.profile.Node {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

func (s *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	resp := &csi.NodeGetInfoResponse{NodeId: s.config.Name, MaxVolumesPerNode: s.profile.MaxVolumesPerNode}
	if t := s.profile.topologyOf(s.config); len(t) > 0 && s.profile.plugin(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS) {
		resp.AccessibleTopology = &csi.Topology{Segments: t}
	}
	return resp, nil
}

func (s *nodeServer) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := errors.Join(s.allows(req.GetVolumeCapability()), s.outside(req.GetStagingTargetPath())); err != nil {
		return nil, fmt.Errorf("stage volume %s: %w", req.GetVolumeId(), err)
	}
	if err := s.node.Authorize(ctx, "NodeStageVolume", req.GetVolumeId(), req.GetPublishContext(), req.GetSecrets()); err != nil {
		return nil, fmt.Errorf("stage volume %s: %w", req.GetVolumeId(), err)
	}
	err := s.node.Stage(ctx, node.StageRequest{
		VolumeID: req.GetVolumeId(), PublishContext: req.GetPublishContext(), Path: req.GetStagingTargetPath(),
		Capability: access.FromCSI(req.GetVolumeCapability()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (s *nodeServer) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := s.node.Unstage(ctx, req.GetVolumeId(), req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (s *nodeServer) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := errors.Join(s.allows(req.GetVolumeCapability()), s.outside(req.GetTargetPath())); err != nil {
		return nil, fmt.Errorf("publish volume %s: %w", req.GetVolumeId(), err)
	}
	if req.GetVolumeContext()[ephemeralKey] == "true" {
		return s.publishEphemeral(ctx, req)
	}
	if err := s.node.Authorize(ctx, "NodePublishVolume", req.GetVolumeId(), req.GetPublishContext(), req.GetSecrets()); err != nil {
		return nil, fmt.Errorf("publish volume %s: %w", req.GetVolumeId(), err)
	}
	err := s.node.Publish(ctx, node.PublishRequest{
		VolumeID: req.GetVolumeId(), PublishContext: req.GetPublishContext(), StagingPath: req.GetStagingTargetPath(),
		Path: req.GetTargetPath(), Capability: access.FromCSI(req.GetVolumeCapability()), ReadOnly: req.GetReadonly(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *nodeServer) publishEphemeral(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	size, err := parseSize(req.GetVolumeContext()[sizeKey])
	if err != nil {
		return nil, fmt.Errorf("publish inline volume %s: attribute %s: %w", req.GetVolumeId(), sizeKey, err)
	}
	err = s.node.PublishEphemeral(ctx, node.EphemeralRequest{
		VolumeID: req.GetVolumeId(), Path: req.GetTargetPath(), SizeBytes: size,
		Capability: access.FromCSI(req.GetVolumeCapability()), ReadOnly: req.GetReadonly(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *nodeServer) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := s.node.Unpublish(ctx, req.GetVolumeId(), req.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (s *nodeServer) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	stats, err := s.node.Stats(ctx, req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	bytes := &csi.VolumeUsage{Unit: csi.VolumeUsage_BYTES, Total: stats.TotalBytes}
	if stats.AvailableBytes >= 0 && stats.UsedBytes >= 0 {
		bytes.Available, bytes.Used = stats.AvailableBytes, stats.UsedBytes
	}
	resp := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{bytes}}
	if !stats.Block && stats.TotalInodes > 0 {
		resp.Usage = append(resp.Usage, &csi.VolumeUsage{
			Unit: csi.VolumeUsage_INODES, Total: stats.TotalInodes, Available: stats.AvailableInodes, Used: stats.UsedInodes,
		})
	}
	if s.profile.VolumeCondition {
		conditions, err := s.node.Health(ctx, req.GetVolumeId())
		if err != nil {
			return nil, err
		}
		setCondition(resp, conditions)
	}
	return resp, nil
}

func (s *nodeServer) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if c := req.GetVolumeCapability(); c != nil {
		if err := errors.Join(s.allows(c), s.node.CheckCapability(req.GetVolumeId(), access.FromCSI(c))); err != nil {
			return nil, fmt.Errorf("expand volume %s: %w", req.GetVolumeId(), err)
		}
	}
	if err := s.node.Authorize(ctx, "NodeExpandVolume", req.GetVolumeId(), nil, req.GetSecrets()); err != nil {
		return nil, fmt.Errorf("expand volume %s: %w", req.GetVolumeId(), err)
	}
	size, err := s.node.Expand(ctx, req.GetVolumeId(), req.GetVolumePath(), req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, err
	}
	if required := req.GetCapacityRange().GetRequiredBytes(); size < required {
		return nil, fmt.Errorf("expand volume %s: it has %d bytes, %d are required; call ControllerExpandVolume first: %w",
			req.GetVolumeId(), size, required, backends.ErrOutOfRange)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// outside refuses a path in the emulator's own directory, or one that would hide
// it.
func (s *nodeServer) outside(path string) error {
	if s.stateDir == "" || (!within(s.stateDir, path) && !within(path, s.stateDir)) {
		return nil
	}
	return fmt.Errorf("path %q is in the way of the state directory %s: %w", path, s.stateDir, backends.ErrInvalid)
}

// within says whether a clean path is dir or lies below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// allows is the profile's check with what only a node can refuse.
func (s *nodeServer) allows(c *csi.VolumeCapability) error {
	if c.GetMount().GetVolumeMountGroup() != "" && !s.profile.node(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		return fmt.Errorf("volume_mount_group is not supported by this driver: %w", backends.ErrInvalid)
	}
	return s.profile.allows(c)
}
