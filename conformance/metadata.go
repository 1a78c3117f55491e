package conformance

import (
	"context"
	"errors"
	"io"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// message is what the responses of both streams have.
type message interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// receive reads a stream to its end, which is nil if it ended with OK.
func receive[M any](open grpc.ServerStreamingClient[M], err error) ([]message, error) {
	var all []message
	for err == nil {
		var m *M
		if m, err = open.Recv(); err == nil {
			all = append(all, any(m).(message))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// allocated reads the whole stream of GetMetadataAllocated.
func (c *check) allocated(r *csi.GetMetadataAllocatedRequest) ([]message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout())
	defer cancel()
	return receive(c.metadata.GetMetadataAllocated(ctx, r))
}

// firstOf reads the first range of a stream, and cancels it.
func (c *check) firstOf(r *csi.GetMetadataAllocatedRequest) *csi.BlockMetadata {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout())
	defer cancel()
	open, err := c.metadata.GetMetadataAllocated(ctx, r)
	c.ok(err)
	for {
		m, err := open.Recv()
		if errors.Is(err, io.EOF) {
			c.fatalf("want a range, as data was written, got the end of the stream")
		}
		c.ok(err)
		if ranges := m.GetBlockMetadata(); len(ranges) > 0 {
			return ranges[0]
		}
	}
}

// delta reads the whole stream of GetMetadataDelta.
func (c *check) delta(r *csi.GetMetadataDeltaRequest) ([]message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout())
	defer cancel()
	return receive(c.metadata.GetMetadataDelta(ctx, r))
}

// ranges fails the row unless a stream is of good form, and returns all its
// ranges.
func (c *check) ranges(all []message, start int64, most int32) []*csi.BlockMetadata {
	c.Helper()
	var ranges []*csi.BlockMetadata
	end := int64(0)
	for _, m := range all {
		if kind := m.GetBlockMetadataType(); kind == csi.BlockMetadataType_UNKNOWN || kind != all[0].GetBlockMetadataType() {
			c.Errorf("want one block_metadata_type in the whole stream, got %s after %s", kind, all[0].GetBlockMetadataType())
		}
		if size := m.GetVolumeCapacityBytes(); size <= 0 || size != all[0].GetVolumeCapacityBytes() {
			c.Errorf("want one volume_capacity_bytes in the whole stream, got %d after %d", size, all[0].GetVolumeCapacityBytes())
		}
		if n := len(m.GetBlockMetadata()); most > 0 && n > int(most) {
			c.Errorf("want at most %d ranges in a message, got %d", most, n)
		}
		for _, b := range m.GetBlockMetadata() {
			if b.GetSizeBytes() <= 0 || b.GetByteOffset() < end {
				c.fatalf("want ranges that ascend and do not overlap, got %v after offset %d", b, end)
			}
			end = b.GetByteOffset() + b.GetSizeBytes()
			if m.GetBlockMetadataType() == csi.BlockMetadataType_FIXED_LENGTH && len(ranges) > 0 && b.GetSizeBytes() != ranges[0].GetSizeBytes() {
				c.Errorf("want ranges of one length with FIXED_LENGTH, got %d after %d", b.GetSizeBytes(), ranges[0].GetSizeBytes())
			}
			ranges = append(ranges, b)
		}
	}
	if len(ranges) > 0 && ranges[0].GetByteOffset()+ranges[0].GetSizeBytes() <= start {
		c.Errorf("want a first range that ends after starting_offset %d, got %v", start, ranges[0])
	}
	return ranges
}

// covers reports whether an offset lies in one of the ranges.
func covers(ranges []*csi.BlockMetadata, offset int64) bool {
	for _, b := range ranges {
		if b.GetByteOffset() <= offset && offset < b.GetByteOffset()+b.GetSizeBytes() {
			return true
		}
	}
	return false
}

// Where rows about metadata write.
const (
	chunk     = 64 << 10
	firstByte = 1 << 20
	laterByte = 4 << 20
	lastByte  = 8 << 20
)

// tracked is a block volume with two snapshots, between which a chunk was
// written at laterByte; before the first at firstByte and lastByte. Where data
// cannot be written, both snapshots are of an empty volume.
func (c *check) tracked() (v *volume, base, target *csi.Snapshot) {
	c.Helper()
	c.need(creates, snapshots, hasMetadata)
	v = c.with("v", blockCapability(singleWriter))
	write := func(fill byte, offsets ...int64) {
		c.Helper()
		if c.NoData {
			return
		}
		v.up()
		for _, offset := range offsets {
			c.write(v.target, offset, chunk, fill)
		}
		v.down()
	}
	write('a', firstByte, lastByte)
	base = c.snapshot("base", v)
	write('b', laterByte)
	return v, base, c.snapshot("target", v)
}

func metadataRows() []row {
	const get, delta = "GetMetadataAllocated", "GetMetadataDelta"
	needs := []need{creates, snapshots, hasMetadata}
	return []row{
		{rpc: get, name: "tells where data is", clause: "ascending ranges without overlap; one type and capacity in the whole stream", needs: needs, run: func(c *check) {
			v, base, _ := c.tracked()
			all, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId()})
			c.ok(err)
			ranges := c.ranges(all, 0, 0)
			for _, m := range all {
				equal(c, "volume_capacity_bytes", v.GetCapacityBytes(), m.GetVolumeCapacityBytes())
			}
			for _, offset := range []int64{firstByte, lastByte} {
				if !c.NoData && !covers(ranges, offset) {
					c.Errorf("want a range with the byte at %d, which was written, got %v", offset, ranges)
				}
			}
		}},
		{rpc: get, name: "sends no more than max_results in a message", clause: "at most max_results ranges in a message", needs: needs, run: func(c *check) {
			_, base, _ := c.tracked()
			whole, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId()})
			c.ok(err)
			all, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId(), MaxResults: 1})
			c.ok(err)
			sameSet(c, "ranges", c.ranges(whole, 0, 0), c.ranges(all, 0, 1))
		}},
		{rpc: get, name: "goes on from an offset", clause: "no range ends before starting_offset, and none after it is missing", needs: needs, run: func(c *check) {
			_, base, _ := c.tracked()
			for _, start := range []int64{firstByte, laterByte, lastByte} {
				all, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId(), StartingOffset: start})
				c.ok(err)
				if ranges := c.ranges(all, start, 0); !c.NoData && !covers(ranges, lastByte) {
					c.Errorf("want a range with the byte at %d from offset %d, got %v", lastByte, start, ranges)
				}
			}
		}},
		{rpc: get, name: "goes on where a cancelled stream was", clause: "an interrupted stream is continued at the byte after the last range: nothing is missing", needs: needs, run: func(c *check) {
			c.looks()
			_, base, _ := c.tracked()
			whole, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId()})
			c.ok(err)
			head := c.firstOf(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId(), MaxResults: 1})
			end := head.GetByteOffset() + head.GetSizeBytes()
			rest, err := c.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId(), StartingOffset: end})
			c.ok(err)
			sameSet(c, "ranges", c.ranges(whole, 0, 0), append([]*csi.BlockMetadata{head}, c.ranges(rest, end, 0)...))
		}},
		{rpc: delta, name: "tells what has changed", clause: "ascending ranges of what differs, one type and capacity in the whole stream", needs: needs, run: func(c *check) {
			_, base, target := c.tracked()
			ranges := c.changed(&csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId()})
			if !c.NoData && !covers(ranges, laterByte) {
				c.Errorf("want a range with the byte at %d, which was written, got %v", laterByte, ranges)
			}
		}},
		{rpc: delta, name: "sends no more than max_results in a message", clause: "at most max_results ranges in a message", needs: needs, run: func(c *check) {
			_, base, target := c.tracked()
			r := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId()}
			whole := c.changed(r)
			r.MaxResults = 1
			sameSet(c, "ranges", whole, c.changed(r))
		}},
		{rpc: delta, name: "refuses a target that was made before the base", clause: "the target is a later snapshot of the same volume: INVALID_ARGUMENT", level: Should, needs: needs, run: func(c *check) {
			_, base, target := c.tracked()
			r := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId()}
			c.changed(r)
			r.BaseSnapshotId, r.TargetSnapshotId = r.GetTargetSnapshotId(), r.GetBaseSnapshotId()
			_, err := c.delta(r)
			c.code(err, codes.InvalidArgument)
		}},
		{rpc: delta, name: "refuses a target of another volume", clause: "the target is a later snapshot of the same volume: INVALID_ARGUMENT", level: Should, needs: needs, run: func(c *check) {
			_, base, target := c.tracked()
			c.changed(&csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId()})
			other := c.snapshot("other", c.with("w", blockCapability(singleWriter)))
			_, err := c.delta(&csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: other.GetSnapshotId()})
			c.code(err, codes.InvalidArgument, codes.FailedPrecondition)
		}},
		{rpc: delta, name: "goes on from an offset", clause: "no range ends before starting_offset, and none after it is missing", needs: needs, run: func(c *check) {
			_, base, target := c.tracked()
			ranges := c.changed(&csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId(), StartingOffset: laterByte})
			if !c.NoData && !covers(ranges, laterByte) {
				c.Errorf("want a range with the byte at %d, got %v", laterByte, ranges)
			}
		}},
	}
}

// changed is delta with its form checked; the row is skipped if the driver does
// not track changes.
func (c *check) changed(r *csi.GetMetadataDeltaRequest) []*csi.BlockMetadata {
	c.Helper()
	all, err := c.delta(r)
	if status.Code(err) == codes.FailedPrecondition {
		c.Skipf("changed block tracking is not enabled: %s", describe(err))
	}
	c.ok(err)
	return c.ranges(all, r.GetStartingOffset(), r.GetMaxResults())
}

// metadataErrorRows spoil requests to both streams.
func metadataErrorRows() []row {
	type allocated = *csi.GetMetadataAllocatedRequest
	type delta = *csi.GetMetadataDeltaRequest
	needs := []need{creates, snapshots, hasMetadata}
	outOfRange, notFound := []codes.Code{codes.OutOfRange}, []codes.Code{codes.NotFound}
	const noOffset, noSnapshot = "the offset is negative or beyond the volume: OUT_OF_RANGE", "no snapshot has this id: NOT_FOUND"
	rows := refusals("GetMetadataAllocated", needs,
		func(c *check) allocated {
			_, base, _ := c.tracked()
			return &csi.GetMetadataAllocatedRequest{SnapshotId: base.GetSnapshotId()}
		},
		func(c *check, r allocated) error { _, err := c.allocated(r); return err },
		spoiled[allocated]{name: "refuses a request without a snapshot", clause: missingField, edit: func(r allocated) { r.SnapshotId = "" }},
		spoiled[allocated]{name: "refuses a snapshot that does not exist", clause: noSnapshot, edit: func(r allocated) { r.SnapshotId = "conformance-nothing" }, codes: notFound},
		spoiled[allocated]{name: "refuses a negative offset", clause: noOffset, edit: func(r allocated) { r.StartingOffset = -1 }, codes: outOfRange},
		spoiled[allocated]{name: "refuses an offset beyond the volume", clause: noOffset, edit: func(r allocated) { r.StartingOffset = hugeBytes }, codes: outOfRange},
		spoiled[allocated]{name: "refuses negative max_results", clause: invalidField, edit: func(r allocated) { r.MaxResults = -1 }},
	)
	return append(rows, refusals("GetMetadataDelta", needs,
		func(c *check) delta {
			_, base, target := c.tracked()
			r := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base.GetSnapshotId(), TargetSnapshotId: target.GetSnapshotId()}
			c.changed(r)
			return r
		},
		func(c *check, r delta) error { _, err := c.delta(r); return err },
		spoiled[delta]{name: "refuses a request without a base", clause: missingField, edit: func(r delta) { r.BaseSnapshotId = "" }},
		spoiled[delta]{name: "refuses a request without a target", clause: missingField, edit: func(r delta) { r.TargetSnapshotId = "" }},
		spoiled[delta]{name: "refuses a base that does not exist", clause: noSnapshot, edit: func(r delta) { r.BaseSnapshotId = "conformance-nothing" }, codes: notFound},
		spoiled[delta]{name: "refuses a target that does not exist", clause: noSnapshot, edit: func(r delta) { r.TargetSnapshotId = "conformance-nothing" }, codes: notFound},
		spoiled[delta]{name: "refuses a negative offset", clause: noOffset, edit: func(r delta) { r.StartingOffset = -1 }, codes: outOfRange},
		spoiled[delta]{name: "refuses an offset beyond the volume", clause: noOffset, edit: func(r delta) { r.StartingOffset = hugeBytes }, codes: outOfRange},
		spoiled[delta]{name: "refuses negative max_results", clause: invalidField, edit: func(r delta) { r.MaxResults = -1 }},
	)...)
}
