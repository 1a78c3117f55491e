package emulator

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/fault"
)

// broken is what was last done to the bytes of volumes. It is safe for concurrent
// use.
type broken struct {
	mu sync.Mutex
	// ids are the faults that each volume suffers from, mechanisms how.
	ids        map[string]string
	mechanisms map[string][]string
	// failed are the latest faults that could not be given to a volume.
	failed []error
}

// mostFailed bounds failed.
const mostFailed = 100

func (b *broken) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = append(b.failed, err)
	if extra := len(b.failed) - mostFailed; extra > 0 {
		b.failed = b.failed[extra:]
	}
}

func (b *broken) failures() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.failed)
}

func (b *broken) set(volumeID, ids string, mechanisms []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ids == "" {
		delete(b.ids, volumeID)
		delete(b.mechanisms, volumeID)
		return
	}
	if b.ids == nil {
		b.ids, b.mechanisms = map[string]string{}, map[string][]string{}
	}
	b.ids[volumeID], b.mechanisms[volumeID] = ids, mechanisms
}

// of are the mechanisms of the faults of a volume.
func (b *broken) of(volumeID string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mechanisms[volumeID]
}

// by are the ids of the faults that a volume suffers from.
func (b *broken) by(volumeID string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ids[volumeID]
}

// volumes are the ids of those that suffer.
func (b *broken) volumes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.ids))
}

// renew makes the faults that a volume suffers from be given to it again.
func (b *broken) renew(volumeID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, suffers := b.ids[volumeID]; suffers {
		b.ids[volumeID] = "grown"
	}
}

// forget makes the faults be given to a volume again.
func (b *broken) forget(volumeID string) { b.set(volumeID, "", nil) }

func idsOf(firings []fault.Firing) string {
	var ids []string
	for _, f := range firings {
		ids = append(ids, f.ID)
	}
	return strings.Join(ids, ",")
}
