package array_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator/access"
	"github.com/csiemu/csiemu/emulator/array"
	"github.com/csiemu/csiemu/internal/record"
)

// FuzzRecords opens an array over a record that holds anything: what is wrong
// with it is found out then, and what is left is a volume like any other.
func FuzzRecords(f *testing.F) {
	kinds := []string{"volumes", "snapshots", "nodes", "array", "groups"}
	for kind := range kinds {
		for _, data := range []string{
			`{}`, `null`, `[]`, `{"id":"fuzzed"}`, `{"id":"fuzzed","backend":"memory"}`,
			`{"id":"fuzzed","name":"n","state":"ready","seq":1,"layout":{"sizeBytes":4096},"pool":"default","capabilities":[{"mode":1}]}`,
			`{"id":"fuzzed","name":"n","state":"ready","layout":{"sizeBytes":4096},"device":{"ID":"a"},"attachments":[{"nodeID":"node-1"}]}`,
			`{"id":"fuzzed","name":"n","state":"ready","layout":{"sizeBytes":4096},"attachments":[{"nodeID":"node-1"}]}`,
			`{"id":"fuzzed","name":"n","state":"creating","layout":{"sizeBytes":9223372036854775807},"growing":true}`,
			`{"id":"fuzzed","name":"n","state":"ready","sourceID":"v","reservedBytes":-1,"layout":{"sizeBytes":1}}`,
		} {
			f.Add(uint8(kind), []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		store := record.NewMemory()
		if store.Put(t.Context(), kinds[int(kind)%len(kinds)], "fuzzed", json.RawMessage(data)) != nil {
			return // no JSON at all, which package record finds out
		}
		a, err := openOver(t, store)
		if err != nil {
			require.ErrorIs(t, err, backends.ErrInvalid, "an array of another backend")
			return
		}
		volumes, _, err := a.List("", 0)
		require.NoError(t, err)
		for _, v := range volumes {
			live(t, a, v)
		}
		snapshots, _, err := a.ListSnapshots("", 0, "", "")
		require.NoError(t, err)
		for _, s := range snapshots {
			_, err := a.Create(t.Context(), array.CreateRequest{Name: "restored", Source: array.Source{SnapshotID: s.ID}, Capabilities: []access.Capability{{Mode: 1}}})
			requireKnown(t, err)
			requireKnown(t, a.DeleteSnapshot(t.Context(), s.ID))
		}
		_, err = openOver(t, store)
		require.NoError(t, err)
	})
}

func openOver(t *testing.T, store record.Store) (*array.Array, error) {
	a, err := array.Open(t.Context(), array.Options{
		Backend: memory.New(memory.Options{}), Store: store, Pools: map[string]int64{"default": pool}, DefaultPool: "default", Holder: &still{},
	})
	if err == nil {
		require.NoError(t, a.SetNode(t.Context(), array.Node{ID: "node-1"}))
	}
	return a, err
}

// live walks a volume through what an array does with volumes.
func live(t *testing.T, a *array.Array, v *array.Volume) {
	ctx := t.Context()
	want := array.Attachment{NodeID: "node-1", Capability: access.Capability{Mode: 1}}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := a.Attach(ctx, v.ID, want); return err },
		func(ctx context.Context) error {
			for _, have := range v.Attachments {
				if _, err := a.Attach(ctx, v.ID, have); err != nil {
					return err
				}
			}
			return nil
		},
		func(ctx context.Context) error {
			_, err := a.Expand(ctx, v.ID, 2*v.Layout.SizeBytes, 0, true)
			return err
		},
		func(ctx context.Context) error { return a.Detach(ctx, v.ID, "") },
		func(ctx context.Context) error { return a.Delete(ctx, v.ID) },
	} {
		requireKnown(t, step(ctx))
	}
	_, err := a.Volume(v.ID)
	require.ErrorIs(t, err, backends.ErrNotFound)
}

// requireKnown asserts that an error is of a kind that the caller can be told.
func requireKnown(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, kind := range []error{
		backends.ErrInvalid, backends.ErrNotFound, backends.ErrExists, backends.ErrExhausted,
		backends.ErrPrecondition, backends.ErrOutOfRange, backends.ErrAborted,
	} {
		if errors.Is(err, kind) {
			return
		}
	}
	require.NoError(t, err)
}

// FuzzList lists from any token: pages follow each other without a gap, or the
// token is refused.
func FuzzList(f *testing.F) {
	a, err := array.Open(f.Context(), array.Options{
		Backend: memory.New(memory.Options{}), Store: record.NewMemory(), Pools: map[string]int64{"default": pool}, DefaultPool: "default",
	})
	require.NoError(f, err)
	for _, name := range []string{"a", "b", "c"} {
		_, err := a.Create(f.Context(), array.CreateRequest{Name: name, RequiredBytes: mib, Capabilities: []access.Capability{{Mode: 1}}})
		require.NoError(f, err)
	}
	_, next, err := a.List("", 1)
	require.NoError(f, err)
	for _, token := range []string{"", next, "after-0", "after-", "after--1", "after-+1", "after-18446744073709551615", "after-99999999999999999999", "1"} {
		f.Add(token, 1)
	}
	f.Fuzz(func(t *testing.T, token string, limit int) {
		limit = max(limit, 0) // the chain refuses others
		page, next, err := a.List(token, limit)
		if err != nil {
			require.ErrorIs(t, err, backends.ErrAborted)
			return
		}
		rest, _, err := a.List(token, 0)
		require.NoError(t, err)
		if next == "" {
			require.Equal(t, rest, page)
			return
		}
		require.Len(t, page, limit)
		after, _, err := a.List(next, 0)
		require.NoError(t, err)
		require.Equal(t, rest, append(page, after...))
	})
}
