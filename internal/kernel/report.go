package kernel

import (
	"context"
	"errors"
)

// Answer is what a probe found, with what its absence costs.
type Answer struct {
	// Feature is what was asked.
	Feature Feature `json:"feature"`
	// OK is true when the machine has it.
	OK bool `json:"ok"`
	// Reason says why not; empty when OK.
	Reason string `json:"reason,omitempty"`
	// Without says what cannot be done without the feature. It is set whether
	// or not the feature is there.
	Without string `json:"without"`
	// Remedy is what to do about it; empty when OK or when nothing helps.
	Remedy string `json:"remedy,omitempty"`
}

// Report probes everything, in a stable order, and at the end what depends on
// the directory of the store: reflink and direct I/O. storeDir must exist; empty
// means that it is not asked. It is what `csiemu doctor`
// shows. A cancelled context makes the rest of the answers say so.
func Report(ctx context.Context, storeDir string) []Answer {
	features := Features()
	answers := make([]Answer, 0, len(features)+2)
	for _, f := range features {
		answers = append(answers, answer(f, Probe(ctx, f)))
	}
	if storeDir != "" {
		answers = append(answers, answer(ReflinkFeature, Reflink(storeDir)), answer(DirectIOFeature, DirectIO(storeDir)))
	}
	return answers
}

func answer(f Feature, err error) Answer {
	a := Answer{Feature: f, OK: err == nil, Without: without(f)}
	var unsupported *NotSupportedError
	switch {
	case err == nil:
	case errors.As(err, &unsupported):
		a.Reason, a.Remedy = unsupported.Reason, unsupported.Remedy
	default:
		a.Reason = err.Error()
	}
	return a
}

// without says what the absence of a feature costs.
func without(f Feature) string {
	switch f {
	case Root:
		return "no real volumes; the memory backend works"
	case Loop, LoopConfigure:
		return "no loop volumes; tmpfs and memory volumes work"
	case Mknod:
		return "loop volumes only where /dev shows new devices by itself"
	case Ext4, XFS, Btrfs:
		return "no " + string(f) + " volumes"
	case Tmpfs:
		return "no tmpfs volumes"
	case FSMount, OpenAt2, StatxMountID:
		return "no mounts, so no volumes with a file system and no published block devices"
	case MountSetattr:
		return "no read-only or otherwise restricted publications"
	case Freeze:
		return "no snapshots and clones of volumes while they are written to"
	case CopyFileRange:
		return "copies go through memory and are slower"
	case UserXattr:
		return "tmpfs volumes keep no user extended attributes"
	case SysResource:
		return "ext4 volumes grow at the next stage, not while they are mounted"
	case BtrfsTempFSID:
		return "a btrfs restore or clone cannot be mounted beside its source"
	case FUSE:
		return "no breakable volumes: errors, delays and hangs below a file system"
	case SELinux:
		return "SELinux mount options are refused by the kernel"
	case ReflinkFeature:
		return "snapshots and clones copy their data instead of sharing it"
	case DirectIOFeature:
		return "loop volumes use the page cache twice, and are faster than their disk"
	}
	return "unknown feature"
}
