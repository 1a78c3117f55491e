package record

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Memory is a Store without a disk. It keeps encoded copies, so a caller that
// changes a value after Put changes no record.
type Memory struct {
	mu      sync.RWMutex
	records map[string]map[string][]byte // kind, id, envelope
}

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{records: map[string]map[string][]byte{}} }

var _ Store = (*Memory)(nil)

// Put is Store.Put; it never fails for want of space.
func (m *Memory) Put(ctx context.Context, kind, id string, v any) error {
	if err := checkNames(kind, id); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write record %s/%s: %w", kind, id, err)
	}
	b, err := encode(kind, id, v)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[kind] == nil {
		m.records[kind] = map[string][]byte{}
	}
	m.records[kind][id] = b
	return nil
}

// Delete is Store.Delete.
func (m *Memory) Delete(ctx context.Context, kind, id string) error {
	if err := checkNames(kind, id); err != nil {
		return fmt.Errorf("delete record: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete record %s/%s: %w", kind, id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records[kind], id)
	return nil
}

// Load is Store.Load. Records of Memory are damaged only where each says so;
// they are taken out of the store then.
func (m *Memory) Load(ctx context.Context, kind string, each func(id string, data []byte) error) ([]Damaged, error) {
	if err := checkKind(kind); err != nil {
		return nil, fmt.Errorf("load records: %w", err)
	}
	m.mu.RLock()
	records := maps.Clone(m.records[kind])
	m.mu.RUnlock()
	var damaged []Damaged
	for _, id := range slices.Sorted(maps.Keys(records)) {
		if err := ctx.Err(); err != nil {
			return damaged, fmt.Errorf("load records %s: %w", kind, err)
		}
		data, err := decode(kind, id, records[id])
		if err == nil {
			err = each(id, data)
		}
		switch {
		case err == nil:
		case isDamage(err):
			damaged = append(damaged, Damaged{Kind: kind, ID: id, Err: err})
			m.mu.Lock()
			delete(m.records[kind], id)
			m.mu.Unlock()
		default:
			return damaged, fmt.Errorf("load record %s/%s: %w", kind, id, err)
		}
	}
	return damaged, nil
}

// Path is empty: there are no directories.
func (m *Memory) Path(kind, id string) string { return "" }

// Close does nothing. The records stay, and the same Memory given to a second
// emulator is a restart without a disk.
func (m *Memory) Close() error { return nil }
