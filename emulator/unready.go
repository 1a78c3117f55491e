package emulator

import (
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/fault"
)

// unready are the snapshots that a fault makes wait before they are ready to use.
// It is safe for concurrent use.
type unready struct {
	mu   sync.Mutex
	byID map[string]*pending
}

// pending is a snapshot that is not ready.
type pending struct {
	fault fault.Firing
	since time.Time
	// polls is how often it was shown.
	polls int
	// over is true from when it is ready on: it does not begin again when
	// CreateSnapshot is repeated.
	over bool
}

// begin makes a snapshot wait, unless it has begun to.
func (u *unready) begin(id string, f fault.Firing) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byID == nil {
		u.byID = map[string]*pending{}
	}
	if _, waits := u.byID[id]; !waits {
		u.byID[id] = &pending{fault: f, since: time.Now()}
	}
}

// shown counts that a snapshot is shown, and says whether it is ready.
func (u *unready) shown(id string) bool { return u.look(id, 1) }

// check refuses to make a volume of a snapshot that is not ready.
func (u *unready) check(request any) error {
	r, ok := request.(*csi.CreateVolumeRequest)
	if !ok || r.GetVolumeContentSource().GetSnapshot() == nil {
		return nil
	}
	if id := r.GetVolumeContentSource().GetSnapshot().GetSnapshotId(); !u.look(id, 0) {
		return fmt.Errorf("create volume %q: snapshot %s is not ready to use yet: %w", r.GetName(), id, backends.ErrAborted)
	}
	return nil
}

func (u *unready) look(id string, polls int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.byID[id]
	if p == nil {
		return true
	}
	over := false
	select {
	case <-p.fault.Released:
		over = true
	default:
	}
	p.polls += polls
	switch a := p.fault.Action; a.Verb {
	case fault.After:
		over = over || time.Since(p.since) >= a.Duration
	default:
		over = over || p.polls > a.Polls
	}
	p.over = p.over || over
	return p.over
}

// forget forgets a snapshot that is deleted.
func (u *unready) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.byID, id)
}

// mark corrects what a reply says of snapshots that are not ready.
func (u *unready) mark(reply any) {
	switch r := reply.(type) {
	case *csi.CreateSnapshotResponse:
		u.markSnapshot(r.GetSnapshot())
	case *csi.GetSnapshotResponse:
		u.markSnapshot(r.GetSnapshot())
	case *csi.ListSnapshotsResponse:
		for _, entry := range r.GetEntries() {
			u.markSnapshot(entry.GetSnapshot())
		}
	case *csi.CreateVolumeGroupSnapshotResponse:
		u.markGroup(r.GetGroupSnapshot())
	case *csi.GetVolumeGroupSnapshotResponse:
		u.markGroup(r.GetGroupSnapshot())
	}
}

func (u *unready) markSnapshot(s *csi.Snapshot) {
	if s != nil {
		s.ReadyToUse = u.shown(s.GetSnapshotId())
	}
}

func (u *unready) markGroup(g *csi.VolumeGroupSnapshot) {
	if g == nil {
		return
	}
	g.ReadyToUse = true
	for _, s := range g.GetSnapshots() {
		u.markSnapshot(s)
		g.ReadyToUse = g.ReadyToUse && s.GetReadyToUse()
	}
}
