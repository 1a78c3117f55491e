package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// stores opens each kind of store, empty.
var stores = map[string]func(t *testing.T) Store{
	"directory":        func(t *testing.T) Store { return open(t, t.TempDir(), Options{}) },
	"synced directory": func(t *testing.T) Store { return open(t, t.TempDir(), Options{Sync: true}) },
	"memory":           func(*testing.T) Store { return NewMemory() },
}

func open(t *testing.T, dir string, o Options) *Dir {
	t.Helper()
	d, err := Open(dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// forEachStore runs a test on each kind of store.
func forEachStore(t *testing.T, test func(t *testing.T, s Store)) {
	t.Helper()
	t.Parallel()
	for name, make := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, make(t))
		})
	}
}

type volume struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// load returns all records of a kind, which must all be sound.
func load(t *testing.T, s Store, kind string) map[string]volume {
	t.Helper()
	found := map[string]volume{}
	damaged, err := s.Load(t.Context(), kind, func(id string, data []byte) error {
		var v volume
		found[id] = v
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		found[id] = v
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, damaged)
	return found
}

func TestPutAndLoad(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		require.Empty(t, load(t, s, "volumes"), "a kind without records is no error")

		require.NoError(t, s.Put(t.Context(), "volumes", "b", volume{"two", 2}))
		require.NoError(t, s.Put(t.Context(), "volumes", "a", volume{"one", math.MaxInt64}))
		require.NoError(t, s.Put(t.Context(), "snapshots", "a", volume{"other kind", 3}))
		require.NoError(t, s.Put(t.Context(), "volumes", "b", volume{"a name that is a good deal longer", 22}))
		require.NoError(t, s.Put(t.Context(), "volumes", "b", volume{`short, "quoted" <&> é` + "\u2028", 222}))

		require.Equal(t, map[string]volume{
			"a": {"one", math.MaxInt64}, "b": {`short, "quoted" <&> é` + "\u2028", 222},
		}, load(t, s, "volumes"))
		require.Equal(t, map[string]volume{"a": {"other kind", 3}}, load(t, s, "snapshots"))
	})
}

func TestLoadKeepsTheOrderOfIDs(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		for _, id := range []string{"c", "a", "B", "10", "9"} {
			require.NoError(t, s.Put(t.Context(), "volumes", id, volume{}))
		}
		var ids []string
		_, err := s.Load(t.Context(), "volumes", func(id string, _ []byte) error { ids = append(ids, id); return nil })
		require.NoError(t, err)
		require.Equal(t, []string{"10", "9", "B", "a", "c"}, ids)
	})
}

func TestPutKeepsACopy(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		v := &volume{Name: "before"}
		require.NoError(t, s.Put(t.Context(), "volumes", "a", v))
		v.Name = "after"
		_, err := s.Load(t.Context(), "volumes", func(_ string, data []byte) error {
			clear(data) // the caller's to keep, and to spoil
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "before", load(t, s, "volumes")["a"].Name)
	})
}

func TestDelete(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		require.NoError(t, s.Delete(t.Context(), "volumes", "a"), "gone is fine before there is anything")
		require.NoError(t, s.Put(t.Context(), "volumes", "a", volume{"one", 1}))
		require.NoError(t, s.Put(t.Context(), "volumes", "b", volume{"two", 2}))
		require.NoError(t, s.Delete(t.Context(), "volumes", "a"))
		require.NoError(t, s.Delete(t.Context(), "volumes", "a"), "gone is fine")
		require.Equal(t, map[string]volume{"b": {"two", 2}}, load(t, s, "volumes"))
		require.NoError(t, s.Put(t.Context(), "volumes", "a", volume{"again", 3}))
		require.Equal(t, map[string]volume{"a": {"again", 3}, "b": {"two", 2}}, load(t, s, "volumes"))
	})
}

func TestEachMayChangeTheStore(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		for i := range 5 {
			require.NoError(t, s.Put(t.Context(), "volumes", fmt.Sprint("v", i), volume{Size: 1}))
		}
		_, err := s.Load(t.Context(), "volumes", func(id string, _ []byte) error {
			if id == "v3" {
				return s.Delete(t.Context(), "volumes", id)
			}
			return s.Put(t.Context(), "volumes", id, volume{Size: 2})
		})
		require.NoError(t, err)
		require.Equal(t, map[string]volume{"v0": {"", 2}, "v1": {"", 2}, "v2": {"", 2}, "v4": {"", 2}}, load(t, s, "volumes"))
	})
}

func TestEachReportsDamage(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		for _, id := range []string{"a", "b", "c"} {
			require.NoError(t, s.Put(t.Context(), "volumes", id, volume{Name: id}))
		}
		damaged, err := s.Load(t.Context(), "volumes", func(id string, _ []byte) error {
			if id == "b" {
				return fmt.Errorf("size is negative: %w", ErrDamaged)
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, damaged, 1)
		require.Equal(t, "b", damaged[0].ID)
		require.ErrorContains(t, damaged[0].Err, "size is negative")
		require.Equal(t, map[string]volume{"a": {Name: "a"}, "c": {Name: "c"}}, load(t, s, "volumes"))
	})
}

func TestEachEndsLoad(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		for _, id := range []string{"a", "b"} {
			require.NoError(t, s.Put(t.Context(), "volumes", id, volume{Name: id}))
		}
		calls, stop := 0, errors.New("stop")
		_, err := s.Load(t.Context(), "volumes", func(string, []byte) error { calls++; return stop })
		require.ErrorIs(t, err, stop)
		require.ErrorContains(t, err, "volumes/a")
		require.Equal(t, 1, calls)
		require.Len(t, load(t, s, "volumes"), 2)
	})
}

func TestContextEnds(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		require.NoError(t, s.Put(t.Context(), "volumes", "a", volume{Size: 1}))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Put(ctx, "volumes", "a", volume{Size: 2}), context.Canceled)
		require.ErrorIs(t, s.Put(ctx, "volumes", "b", volume{}), context.Canceled)
		require.ErrorIs(t, s.Delete(ctx, "volumes", "a"), context.Canceled)
		_, err := s.Load(ctx, "volumes", func(string, []byte) error { return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, map[string]volume{"a": {Size: 1}}, load(t, s, "volumes"))
	})
}

func TestNames(t *testing.T) {
	for what, name := range map[string]string{
		"empty":              "",
		"dot":                ".",
		"parent":             "..",
		"hidden":             ".record.new",
		"starts with a dash": "-rf",
		"separator":          "a/b",
		"other separator":    `a\b`,
		"drive":              "c:",
		"newline":            "a\nb",
		"NUL":                "a\x00",
		"not ASCII":          "é",
		"too long":           strings.Repeat("a", 65),
	} {
		t.Run(what, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s Store) {
				require.ErrorIs(t, s.Put(t.Context(), "volumes", name, volume{}), ErrName)
				require.ErrorIs(t, s.Put(t.Context(), name, "a", volume{}), ErrName)
				require.ErrorIs(t, s.Delete(t.Context(), "volumes", name), ErrName)
				_, err := s.Load(t.Context(), name, nil)
				require.ErrorIs(t, err, ErrName)
			})
		})
	}
	t.Run("of the store itself", func(t *testing.T) {
		forEachStore(t, func(t *testing.T, s Store) {
			require.ErrorIs(t, s.Put(t.Context(), "damaged", "a", volume{}), ErrName)
			require.ErrorIs(t, s.Put(t.Context(), "lock", "a", volume{}), ErrName)
		})
	})
	t.Run("longest", func(t *testing.T) {
		forEachStore(t, func(t *testing.T, s Store) {
			id := strings.Repeat("a", 62) + ".Z"
			require.NoError(t, s.Put(t.Context(), "kind_1", id, volume{Size: 1}))
			require.Contains(t, load(t, s, "kind_1"), id)
		})
	})
}

func TestPutRefusesWhatIsNoJSON(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		require.NoError(t, s.Put(t.Context(), "volumes", "a", volume{Size: 1}))
		require.ErrorContains(t, s.Put(t.Context(), "volumes", "a", make(chan int)), "encode record volumes/a")
		require.ErrorContains(t, s.Put(t.Context(), "volumes", "a", strings.Repeat("x", maxBytes)), "more than a record holds")
		require.Equal(t, map[string]volume{"a": {Size: 1}}, load(t, s, "volumes"))
	})
}

func TestCallersAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store) {
		const callers, rounds = 16, 12
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				own := fmt.Sprint("own-", c)
				for i := range rounds {
					check(t, s.Put(t.Context(), "volumes", own, volume{Name: own, Size: int64(i)}))
					check(t, s.Put(t.Context(), "volumes", "shared", volume{Name: strings.Repeat("x", c*i), Size: int64(c * i)}))
					if i%4 == 3 {
						check(t, s.Delete(t.Context(), "volumes", own))
					}
					if c == 0 {
						check(t, s.Delete(t.Context(), "volumes", "shared"))
					}
				}
				check(t, s.Put(t.Context(), "volumes", own, volume{Name: own}))
			})
		}
		wg.Wait()
		found := load(t, s, "volumes")
		for c := range callers {
			own := fmt.Sprint("own-", c)
			require.Equal(t, volume{Name: own}, found[own])
		}
		require.Len(t, found["shared"].Name, int(found["shared"].Size), "no mixture of two")
	})
}

// check is for goroutines that are not the test's own.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestMemoryOutlivesClose(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	require.NoError(t, m.Put(t.Context(), "volumes", "a", volume{Size: 1}))
	require.NoError(t, m.Close())
	require.Equal(t, map[string]volume{"a": {Size: 1}}, load(t, m, "volumes"))
	require.Empty(t, m.Path("volumes", "a"))
}

func TestPathIsWhereTheRecordLies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "made", "by", "open"), Options{Sync: true})
	require.NoError(t, d.Put(t.Context(), "volumes", "a", volume{"one", 1}))
	require.Equal(t, filepath.Join(dir, "made/by/open/volumes/a"), d.Path("volumes", "a"))
	b, err := os.ReadFile(filepath.Join(d.Path("volumes", "a"), "record.json"))
	require.NoError(t, err)
	require.Equal(t, `{"version":1,"kind":"volumes","id":"a","data":{"name":"one","size":1}}`+"\n", string(b))
	for _, name := range []string{d.dir, d.Path("volumes", "a")} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "records may hold what others must not read")
	}
}
