package rpc_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/emulator/rpc"
)

// A group is deleted with its members, whether its caller names them or not.
func TestDeletingAGroupLocksItsMembers(t *testing.T) {
	t.Parallel()
	for name, named := range map[string][]string{"it names none": nil, "it names all": {"s1", "s2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, rpc.Options{Members: func(group string) []string {
				require.Equal(t, "g", group)
				return []string{"s2", "s1"}
			}})
			p, done := s.run(&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: "g", SnapshotIds: named})
			for _, member := range []string{"s1", "s2"} {
				s.requireQueues(restore("from "+member, member))
			}
			other, otherDone := s.run(restore("from another", "s3"))
			other.end <- nil
			require.NoError(t, <-otherDone)
			p.end <- nil
			require.NoError(t, <-done)
			s.idle()
		})
	}
}
