package backends

import "context"

// NodeConfig is what a backend's node half needs of its surroundings.
type NodeConfig struct {
	// Dir is a directory of the node's own, which exists, for device nodes and
	// the like.
	Dir string
	// Sync asks for flushes that survive a lost machine, not only a killed
	// process.
	Sync bool
}

// StageRequest asks a node to make an attached volume usable.
type StageRequest struct {
	VolumeID string
	// PublishContext is what Attach returned, perhaps in another process and
	// before a reboot.
	PublishContext map[string]string
	// Path is the staging path: an absolute path without symbolic links. For a
	// file system it becomes a mount point; for block it is a directory that
	// the backend may leave empty.
	Path string
	// Block asks for raw block access; the fields below are for file systems.
	Block bool
	// FSType is ext4, xfs, btrfs or another name; empty means the default.
	FSType string
	// MountFlags are mount options, as mount -o takes them, one an entry.
	MountFlags []string
	// Group is the numeric group that must be able to write; empty means none.
	Group string
	// ReadOnly is true when only reading was attached.
	ReadOnly bool
}

// Staged is what a node remembers of a staged volume. It is part of the node's
// record and enough to work without the array.
type Staged struct {
	VolumeID string `json:"volumeID"`
	Path     string `json:"path"`
	Block    bool   `json:"block,omitempty"`
	FSType   string `json:"fsType,omitempty"`
	// Device is the path of the block device, empty where there is none.
	Device string `json:"device,omitempty"`
	// DeviceID is the attachment id that the device must carry.
	DeviceID string `json:"deviceID,omitempty"`
	// Options is the exact option string given to the kernel.
	Options string `json:"options,omitempty"`
	// ReadOnly is true when the volume was attached for reading only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// SizeBytes is the volume's size where no device can tell it.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// PublishRequest asks for a staged volume at a path of a workload.
type PublishRequest struct {
	// Path is the target: absolute, without symbolic links, its parent exists.
	Path     string
	ReadOnly bool
	// MountFlags are the options of this publication.
	MountFlags []string
}

// Stats are the figures of NodeGetVolumeStats. Available and used are -1 where
// they are not known, inodes are 0 for block volumes.
type Stats struct {
	TotalBytes, AvailableBytes, UsedBytes    int64
	TotalInodes, AvailableInodes, UsedInodes int64
	Block                                    bool
}

// Hold says how still a volume has to be.
type Hold struct {
	// Published is true when a workload may write through a publication.
	Published bool
	// Exact asks that nothing changes. Without it a raw block volume that is
	// published is only flushed: its writers go on.
	Exact bool
}

// Node is a backend's half on a node. Its methods may be called concurrently,
// for one volume one at a time (but Stats at any time). All of them are
// idempotent: the caller repeats them after a crash.
type Node interface {
	// Stage formats the volume if it is blank, mounts it and grows its file
	// system to the size of the volume. Content that is not of the wanted type
	// is ErrPrecondition and never overwritten. ErrNotFound means that no
	// device carries the attachment.
	Stage(context.Context, StageRequest) (Staged, error)
	// IsStaged asks the kernel whether s still stands, as a record alone may be
	// older than a reboot.
	IsStaged(context.Context, Staged) (bool, error)
	// Unstage undoes Stage; it needs neither the device nor the array.
	Unstage(context.Context, Staged) error

	// Publish makes s visible at a path, creating the last element of the path.
	Publish(context.Context, Staged, PublishRequest) error
	// IsPublished asks the kernel whether s is visible at path.
	IsPublished(ctx context.Context, s Staged, path string) (bool, error)
	// Unpublish undoes Publish and removes what it created. A path where
	// nothing is, or whose mount is dead, is no error.
	Unpublish(ctx context.Context, s Staged, path string) error

	// Stats reports on the volume seen at path: its staging path or a target.
	Stats(ctx context.Context, s Staged, path string) (Stats, error)
	// Expand grows what lies on the device to the device's size and returns the
	// size in bytes. ErrPrecondition names what is missing where the kernel
	// cannot do that while the volume is in use.
	Expand(ctx context.Context, s Staged) (int64, error)
	// Hold stops changes of the bytes under s and returns the release. A volume
	// that cannot be held is ErrPrecondition.
	Hold(ctx context.Context, s Staged, h Hold) (release func() error, err error)
	// Recover undoes a Hold that a killed process left.
	Recover(ctx context.Context, s Staged) error

	// Close frees what the half itself holds; volumes stay.
	Close() error
}

// EphemeralRequest asks for a volume that lives as long as one publication.
type EphemeralRequest struct {
	VolumeID string
	// SizeBytes is the limit of the volume; 0 means the backend's default.
	SizeBytes int64
	// Dir is a directory of the node's own for this volume, which exists.
	Dir        string
	FSType     string
	MountFlags []string
	Group      string
}

// EphemeralNode is a node half that can make inline ephemeral volumes. What
// MakeEphemeral returns is published like a staged volume and undone by
// RemoveEphemeral; both are idempotent.
type EphemeralNode interface {
	MakeEphemeral(context.Context, EphemeralRequest) (Staged, error)
	RemoveEphemeral(context.Context, Staged) error
}
