package node

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/access"
)

// volumeKind is the kind of the node's records, one a volume.
const volumeKind = "volumes"

// Volume is what a node remembers of one volume. It is written before the node
// does anything, so that a record may say more than the kernel does (after a
// crash or a reboot) but never less.
type Volume struct {
	ID string `json:"id"`
	// Capability, StagingPath and Staged are those of NodeStageVolume. Whole is
	// set when it has succeeded.
	Capability  access.Capability `json:"capability"`
	StagingPath string            `json:"stagingPath"`
	Whole       bool              `json:"whole,omitempty"`
	Staged      backends.Staged   `json:"staged,omitzero"`
	// ReadOnly is true when the volume was attached to this node for reading
	// only, or its access mode knows no writers.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Local is set where the node attached the volume by itself.
	Local bool `json:"local,omitempty"`
	// Demands is set where the publish context says that the class of the
	// volume demands secrets for some calls.
	Demands bool `json:"demands,omitempty"`
	// Ephemeral is set for an inline volume, which lives as long as its
	// publication.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Held is set while the bytes are kept still for a snapshot.
	Held bool `json:"held,omitempty"`
	// Targets are the publications.
	Targets []Target `json:"targets,omitempty"`
}

// Target is one publication of a volume.
type Target struct {
	Path       string            `json:"path"`
	ReadOnly   bool              `json:"readOnly,omitempty"`
	Capability access.Capability `json:"capability"`
}

// same reports whether two publications differ in nothing but their path.
func (t Target) same(u Target) bool {
	return t.ReadOnly == u.ReadOnly && t.Capability.Same(u.Capability)
}

func (v *Volume) target(path string) (Target, bool) {
	i := slices.IndexFunc(v.Targets, func(t Target) bool { return t.Path == path })
	if i < 0 {
		return Target{}, false
	}
	return v.Targets[i], true
}

// writable reports whether a workload may write through a publication.
func (v *Volume) writable() bool {
	return slices.ContainsFunc(v.Targets, func(t Target) bool { return !t.ReadOnly })
}

func (v *Volume) clone() *Volume {
	c := *v
	c.Targets = slices.Clone(v.Targets)
	return &c
}

// recordID turns a volume id, which a caller chose and which may hold any
// character, into a record's.
func recordID(volumeID string) string {
	sum := sha256.Sum256([]byte(volumeID))
	return hex.EncodeToString(sum[:16])
}
