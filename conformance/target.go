package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Target is the driver under test. Controller alone is enough to begin with;
// further fields make rows possible that would be skipped. A Target is not
// changed by rows.
type Target struct {
	// Controller is the endpoint of the services Identity, Controller,
	// GroupController and SnapshotMetadata. The caller closes it.
	Controller grpc.ClientConnInterface
	// Node is the endpoint of the Node service; nil means Controller.
	Node grpc.ClientConnInterface
	// SecondNodeID is the id of a further node, for rows about volumes that are
	// wanted on two nodes.
	SecondNodeID string

	// Dir is where staging and target paths are made, on the node; it must
	// exist. Empty means os.TempDir().
	Dir string
	// MakeDir and RemoveDir make and remove a directory where the node sees
	// it; nil means os.Mkdir and os.Remove.
	MakeDir, RemoveDir func(ctx context.Context, path string) error
	// NoData leaves out the rows that look at published volumes: those of a
	// node of another host, or of a driver that keeps no bytes.
	NoData bool

	// Block uses block volumes, and not file systems, where a row needs any
	// volume.
	Block bool
	// FSType is the file system of volumes; empty means that of the driver.
	FSType string
	// VolumeBytes is the size of volumes; 0 means 1 GiB. Rows that grow a
	// volume double it, and rows about the end of a file system fill it.
	VolumeBytes int64
	// Parameters are those of every CreateVolume.
	Parameters map[string]string
	// OtherParameters are parameters that make a volume that is not compatible
	// with Parameters.
	OtherParameters map[string]string
	// SnapshotParameters are those of every CreateSnapshot and
	// CreateVolumeGroupSnapshot.
	SnapshotParameters map[string]string
	// MutableParameters are those of every CreateVolume of a driver with
	// MODIFY_VOLUME, ModifiedParameters what a volume can be changed to, and
	// RefusedParameters what it cannot.
	MutableParameters, ModifiedParameters, RefusedParameters map[string]string
	// OtherTopology is a topology segment in which the driver can make volumes
	// and the node does not lie.
	OtherTopology map[string]string
	// Secrets are the secrets of each RPC by its name, as in CreateVolume;
	// those of "" are for RPCs that are not named.
	Secrets map[string]map[string]string

	// Timeout is the deadline of each call; 0 means a minute.
	Timeout time.Duration
}

const (
	defaultVolumeBytes = 1 << 30
	defaultTimeout     = time.Minute
	// patience is how long a row calls again for what takes its time, such as a
	// device that is still busy; interval is how often.
	patience = 15 * time.Second
	interval = 200 * time.Millisecond
)

func (t *Target) volumeBytes() int64 { return cmp.Or(t.VolumeBytes, defaultVolumeBytes) }

func (t *Target) timeout() time.Duration { return cmp.Or(t.Timeout, defaultTimeout) }

func (t *Target) makeDir(ctx context.Context, path string) error {
	if t.MakeDir != nil {
		return t.MakeDir(ctx, path)
	}
	return os.Mkdir(path, 0o700)
}

// removeDir removes an empty directory. It never removes what is in one, which
// may be a volume's.
func (t *Target) removeDir(ctx context.Context, path string) error {
	if t.RemoveDir != nil {
		return t.RemoveDir(ctx, path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a directory: %w", err)
	}
	return nil
}

// capability is a volume capability of the target's access type.
func (t *Target) capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	if t.Block {
		return blockCapability(mode)
	}
	return t.mountCapability(mode)
}

func (t *Target) mountCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: t.FSType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func blockCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}
