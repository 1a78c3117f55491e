//go:build linux

package crash_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// told is what a client knows of a volume or snapshot that it names.
type told int

const (
	// maybe is what is being made or removed: it is there or it is not.
	maybe told = iota
	// there is what a client was told to be.
	there
)

// model is what clients were told, by name. What is not in it is not there. It is
// safe for concurrent use; nil remembers nothing.
type model struct {
	mu        sync.Mutex
	volumes   map[string]told
	snapshots map[string]told
}

func newModel() *model { return &model{volumes: map[string]told{}, snapshots: map[string]told{}} }

// volume notes what is known of a volume from here on; gone forgets it.
func (m *model) volume(name string, k told) { m.note(func() { m.volumes[name] = k }) }

func (m *model) volumeGone(name string) { m.note(func() { delete(m.volumes, name) }) }

func (m *model) snapshot(name string, k told) { m.note(func() { m.snapshots[name] = k }) }

func (m *model) snapshotGone(name string) { m.note(func() { delete(m.snapshots, name) }) }

func (m *model) note(f func()) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// requireKept compares what the records have with what clients were told. It is
// called while no call is under way.
func (m *model) requireKept(t *testing.T, have records) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	volumes, snapshots := map[string]bool{}, map[string]bool{}
	for _, v := range have.volumes {
		volumes[v.Name] = true
	}
	for _, s := range have.snapshots {
		snapshots[s.Name] = true
	}
	require.Empty(t, append(compare("volume", m.volumes, volumes), compare("snapshot", m.snapshots, snapshots)...))
}

func compare(what string, told map[string]told, have map[string]bool) (wrong []string) {
	for name, k := range told {
		if k == there && !have[name] {
			wrong = append(wrong, fmt.Sprintf("%s %s is lost", what, name))
		}
	}
	for name := range have {
		if _, known := told[name]; !known {
			wrong = append(wrong, fmt.Sprintf("%s %s is there, and was deleted or never asked for", what, name))
		}
	}
	return wrong
}
