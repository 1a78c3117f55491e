package emulator

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// authorize refuses calls to the controller services without the secrets that the
// class of the volume demands. Calls to nodes are dealt with by the node, which
// may live in another process.
func (e *Emulator) authorize(ctx context.Context, c *rpc.Call) error {
	if e.array == nil || c.Node != "" || !access.CanDemand(c.Name()) {
		return c.Next(ctx)
	}
	request, ok := c.Request.(interface{ GetSecrets() map[string]string })
	if !ok {
		return c.Next(ctx)
	}
	if err := e.checkSecrets(ctx, c, access.Digests(request.GetSecrets())); err != nil {
		return err
	}
	return c.Next(ctx)
}

// checkSecrets asks each volume and snapshot that a request names.
func (e *Emulator) checkSecrets(ctx context.Context, c *rpc.Call, digests map[string]string) error {
	if create, ok := c.Request.(*csi.CreateVolumeRequest); ok {
		demand, _, err := access.TakeDemand(create.GetParameters())
		if err != nil {
			return err
		}
		return demand.Check(c.Name(), digests)
	}
	var volumes, snapshots []string
	switch r := c.Request.(type) {
	case interface{ GetVolumeId() string }:
		volumes = []string{r.GetVolumeId()}
	case interface{ GetSourceVolumeIds() []string }:
		volumes = r.GetSourceVolumeIds()
	case interface{ GetGroupSnapshotId() string }:
		return e.array.AuthorizeGroup(r.GetGroupSnapshotId(), c.Name(), digests)
	case *csi.CreateSnapshotRequest:
		volumes = []string{r.GetSourceVolumeId()}
	case *csi.DeleteSnapshotRequest:
		snapshots = []string{r.GetSnapshotId()}
	case *csi.GetSnapshotRequest:
		snapshots = []string{r.GetSnapshotId()}
	case *csi.GetMetadataAllocatedRequest:
		snapshots = []string{r.GetSnapshotId()}
	case *csi.GetMetadataDeltaRequest:
		snapshots = []string{r.GetBaseSnapshotId(), r.GetTargetSnapshotId()}
	}
	for _, id := range volumes {
		if err := e.array.Authorize(ctx, id, c.Name(), digests); err != nil {
			return err
		}
	}
	for _, id := range snapshots {
		if err := e.array.AuthorizeSnapshot(id, c.Name(), digests); err != nil {
			return err
		}
	}
	return nil
}
