package emulator

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/emulator/array"
)

// metadataServer is CSI's SnapshotMetadata service. Ranges are as long as they
// are in the store (VARIABLE_LENGTH) and are sent while they are found.
//
// The specification's table has FAILED_PRECONDITION ("changed block tracking is
// not enabled") for GetMetadataDelta only. Bytes without blocks have no
// allocated ones either, and GetMetadataAllocated answers the same:
// UNIMPLEMENTED would speak of the whole service, and one range over everything
// would pass for an answer.
type metadataServer struct {
	csi.UnimplementedSnapshotMetadataServer
	array *array.Array
}

func (s *metadataServer) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	found, err := s.array.Allocated(stream.Context(), req.GetSnapshotId(), req.GetStartingOffset())
	if err != nil {
		return err
	}
	return sendRanges(found, req.GetMaxResults(), func(blocks []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: found.SizeBytes, BlockMetadata: blocks,
		})
	})
}

func (s *metadataServer) GetMetadataDelta(req *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	found, err := s.array.Changed(stream.Context(), req.GetBaseSnapshotId(), req.GetTargetSnapshotId(), req.GetStartingOffset())
	if err != nil {
		return err
	}
	return sendRanges(found, req.GetMaxResults(), func(blocks []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: found.SizeBytes, BlockMetadata: blocks,
		})
	})
}

// maxBlocks is how many ranges a message has at most, also where the caller
// would take more. They take at most 24 bytes each, so that a message stays far
// below the 4 MiB that clients accept and a slow caller holds up little memory.
const maxBlocks = 1000

// sendRanges sends ranges in messages of at most maxResults (0 means maxBlocks).
// While send waits for a slow caller the store is not read. Where there are no
// ranges one message still tells the size.
func sendRanges(found *array.Ranges, maxResults int32, send func([]*csi.BlockMetadata) error) error {
	most := maxBlocks
	if maxResults > 0 {
		most = min(most, int(maxResults))
	}
	var blocks []*csi.BlockMetadata
	sent := false
	for e, err := range found.All {
		if err != nil {
			return err
		}
		blocks = append(blocks, &csi.BlockMetadata{ByteOffset: e.Offset, SizeBytes: e.Length})
		if len(blocks) < most {
			continue
		}
		if err := send(blocks); err != nil {
			return err
		}
		// A step of the chain may keep the message.
		blocks, sent = nil, true
	}
	if sent && len(blocks) == 0 {
		return nil
	}
	return send(blocks)
}
