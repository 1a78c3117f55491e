package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func deleteRows() []row {
	const rpc = "DeleteVolume"
	needs := []need{creates}
	remove := func(c *check, id string) error {
		_, err := c.controller.DeleteVolume(c.ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		return err
	}
	return []row{
		{rpc: rpc, name: "refuses a request without a volume", clause: missingField, needs: needs, run: func(c *check) {
			c.code(remove(c, ""), codes.InvalidArgument)
		}},
		{rpc: rpc, name: "answers OK for a volume that does not exist", clause: "the volume does not exist, or no more: OK", needs: needs, run: func(c *check) {
			c.code(remove(c, c.noID()), codes.OK)
		}},
		{rpc: rpc, name: "answers OK a second time", clause: "the volume does not exist, or no more: OK", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.delete()
			c.code(remove(c, v.GetVolumeId()), codes.OK)
		}},
		{rpc: rpc, name: "leaves nothing that can be found", clause: "a deleted volume exists no more: NOT_FOUND", needs: needs, run: func(c *check) {
			v := c.volume("v")
			v.delete()
			_, err := v.validate(v.capability)
			c.code(err, codes.NotFound)
		}},
		{rpc: rpc, name: "refuses a volume that is attached", clause: "the volume is in use: FAILED_PRECONDITION, and it is not altered", needs: []need{creates, attaches}, run: func(c *check) {
			v := c.volume("v")
			v.attach()
			v.refusesDeletion(remove(c, v.GetVolumeId()))
		}},
		{rpc: rpc, name: "refuses a volume that is published", clause: "the volume is in use: FAILED_PRECONDITION, and it is not altered", needs: needs, run: func(c *check) {
			v := c.volume("v").up()
			v.refusesDeletion(remove(c, v.GetVolumeId()))
			v.publish()
		}},
		{rpc: rpc, name: "keeps snapshots usable, or the volume", clause: "snapshots survive and stay listed; or FAILED_PRECONDITION, and the volume is not altered", needs: []need{creates, snapshots}, run: func(c *check) {
			v := c.volume("v")
			s := c.snapshot("s", v)
			err := remove(c, v.GetVolumeId())
			if !c.code(err, codes.OK, codes.FailedPrecondition) {
				return
			}
			if err != nil {
				if !v.confirmed(v.capability) {
					c.Errorf("want the volume as it was, got %q", v.lastMessage())
				}
				return
			}
			c.undone("volume " + v.GetVolumeId())
			c.volume("restored", v.from(fromSnapshot(s.GetSnapshotId()), s.GetSizeBytes()))
			if c.has[listsSnapshots] && len(c.snapshotsOf(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId()})) != 1 {
				c.Errorf("want the snapshot listed after its volume was deleted, got nothing")
			}
		}},
		{rpc: rpc, name: "keeps copies of the volume, or the volume", clause: "a volume in use: FAILED_PRECONDITION, and it is not altered; a copy is a volume of its own", needs: []need{creates, clones}, run: func(c *check) {
			v := c.volume("v")
			copied := c.volume("copy", v.from(fromVolume(v.GetVolumeId()), v.GetCapacityBytes()))
			err := remove(c, v.GetVolumeId())
			if !c.code(err, codes.OK, codes.FailedPrecondition) {
				return
			}
			if err == nil {
				c.undone("volume " + v.GetVolumeId())
			}
			if !copied.confirmed(copied.capability) {
				c.Errorf("want the copy as it was, got %q", copied.lastMessage())
			}
		}},
	}
}

// refusesDeletion fails the row unless deletion was refused and the volume is
// still there.
func (v *volume) refusesDeletion(err error) {
	v.c.Helper()
	if !v.c.code(err, codes.FailedPrecondition) {
		return
	}
	if _, err := v.validate(v.capability); status.Code(err) != codes.OK {
		v.c.Errorf("want the volume as it was, got %s", describe(err))
	}
}
