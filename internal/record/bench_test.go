package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// payload is about as large as the record of a volume.
type payload struct {
	Name       string            `json:"name"`
	SizeBytes  int64             `json:"sizeBytes"`
	State      string            `json:"state"`
	Parameters map[string]string `json:"parameters"`
}

func newPayload(i int) payload {
	return payload{
		Name: fmt.Sprintf("pvc-%036d", i), SizeBytes: 1 << 30, State: "ready",
		Parameters: map[string]string{"csi.storage.k8s.io/pvc/name": "data-0", "csi.storage.k8s.io/pvc/namespace": "default"},
	}
}

// BenchmarkPut measures a new record and its two rewrites (three Puts a round,
// as in the life of a volume) by several callers beside the system calls that
// this takes at least. Set BENCH_DIR to the file system to measure.
func BenchmarkPut(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, callers := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("sync=%t/callers=%d/store", sync, callers), func(b *testing.B) {
				d, err := Open(benchDir(b), Options{Sync: sync})
				require.NoError(b, err)
				defer d.Close()
				each(b, callers, func(i int) error {
					id := fmt.Sprintf("vol-%d", i/3)
					return d.Put(b.Context(), "volumes", id, newPayload(i))
				})
			})
			b.Run(fmt.Sprintf("sync=%t/callers=%d/calls", sync, callers), func(b *testing.B) {
				dir := benchDir(b)
				data, err := encode("volumes", "vol", newPayload(1))
				require.NoError(b, err)
				each(b, callers, func(i int) error {
					return bare(dir, fmt.Sprintf("vol-%d", i/3), i%3 == 0, sync, data)
				})
			})
		}
	}
}

// bare is what a Put comes to without a store around it: nothing is shared.
func bare(dir, id string, fresh, sync bool, data []byte) error {
	dir = filepath.Join(dir, id)
	if fresh {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, newFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close(), rename(filepath.Join(dir, newFile), filepath.Join(dir, recordFile)))
	if sync {
		err = errors.Join(err, syncDir(dir))
		if fresh {
			err = errors.Join(err, syncDir(filepath.Dir(dir)))
		}
	}
	return err
}

// each spreads b.N calls, three of a row to one caller, over the callers.
func each(b *testing.B, callers int, call func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				from := int(next.Add(3)) - 3
				for i := from; i < from+3; i++ {
					if i >= b.N {
						return
					}
					if err := call(i); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func benchDir(b *testing.B) string {
	b.Helper()
	root := os.Getenv("BENCH_DIR")
	if root == "" {
		return b.TempDir()
	}
	dir, err := os.MkdirTemp(root, "record") //nolint:usetesting // on the file system that is measured
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
	return dir
}

// BenchmarkLoad reads ten thousand records.
func BenchmarkLoad(b *testing.B) {
	dir := benchDir(b)
	d, err := Open(dir, Options{})
	require.NoError(b, err)
	for i := range 10_000 {
		require.NoError(b, d.Put(b.Context(), "volumes", fmt.Sprintf("vol-%d", i), newPayload(i)))
	}
	require.NoError(b, d.Close())
	for b.Loop() {
		d, err := Open(dir, Options{})
		require.NoError(b, err)
		n := 0
		_, err = d.Load(context.Background(), "volumes", func(string, []byte) error { n++; return nil })
		require.NoError(b, err)
		require.Equal(b, 10_000, n)
		require.NoError(b, d.Close())
	}
}

// BenchmarkLife puts a record five times and deletes it, as the life of a volume
// does.
func BenchmarkLife(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%t", sync), func(b *testing.B) {
			d, err := Open(benchDir(b), Options{Sync: sync})
			require.NoError(b, err)
			defer d.Close()
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprintf("vol-%d", i)
				for range 5 {
					require.NoError(b, d.Put(b.Context(), "volumes", id, newPayload(i)))
				}
				require.NoError(b, d.Delete(b.Context(), "volumes", id))
			}
		})
	}
}
