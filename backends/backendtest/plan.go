package backendtest

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

const mebibyte = 1 << 20

func testPlan(t *testing.T, h Harness) {
	r := newRig(t, h)
	for name, c := range map[string]struct {
		request backends.Request
		size    int64
		err     error
	}{
		"nothing asked":                   {backends.Request{}, backends.DefaultBytes, nil},
		"nothing asked, but limited":      {backends.Request{LimitBytes: 700*mebibyte + 5}, 700 * mebibyte, nil},
		"a multiple of the unit":          {backends.Request{RequiredBytes: 900 * mebibyte}, 900 * mebibyte, nil},
		"rounded up":                      {backends.Request{RequiredBytes: 900*mebibyte + 1}, 900*mebibyte + backends.Granularity, nil},
		"rounded up to the limit":         {backends.Request{RequiredBytes: 900*mebibyte + 1, LimitBytes: 900*mebibyte + backends.Granularity}, 900*mebibyte + backends.Granularity, nil},
		"exactly":                         {backends.Request{RequiredBytes: 900 * mebibyte, LimitBytes: 900 * mebibyte}, 900 * mebibyte, nil},
		"exactly, but no multiple":        {backends.Request{RequiredBytes: 900*mebibyte + 1, LimitBytes: 900*mebibyte + 1}, 0, backends.ErrOutOfRange},
		"limited to less than the unit":   {backends.Request{LimitBytes: backends.Granularity - 1}, 0, backends.ErrOutOfRange},
		"more required than the limit":    {backends.Request{RequiredBytes: 2 * mebibyte, LimitBytes: mebibyte}, 0, backends.ErrInvalid},
		"negative":                        {backends.Request{RequiredBytes: -1}, 0, backends.ErrInvalid},
		"negative limit":                  {backends.Request{LimitBytes: -1}, 0, backends.ErrInvalid},
		"more than a file can have":       {backends.Request{RequiredBytes: math.MaxInt64}, 0, backends.ErrOutOfRange},
		"as large as the source":          {backends.Request{MinBytes: 800 * mebibyte}, 800 * mebibyte, nil},
		"larger than the source":          {backends.Request{MinBytes: 800 * mebibyte, RequiredBytes: 900 * mebibyte}, 900 * mebibyte, nil},
		"no smaller than the source":      {backends.Request{MinBytes: 800 * mebibyte, RequiredBytes: 700 * mebibyte}, 800 * mebibyte, nil},
		"limited to less than its source": {backends.Request{MinBytes: 800 * mebibyte, LimitBytes: 700 * mebibyte}, 0, backends.ErrOutOfRange},
		"an unknown parameter":            {backends.Request{Parameters: map[string]string{"no-such-parameter": "1"}}, 0, backends.ErrInvalid},
	} {
		for _, a := range h.accesses() {
			t.Run(name+", "+a.name, func(t *testing.T) {
				t.Parallel()
				q := c.request
				q.Block, q.Filesystem = a.block, !a.block
				if a.fsType != "" {
					q.FSTypes = []string{a.fsType}
				}
				l, err := r.backend.Plan(q)
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					require.Zero(t, l)
					return
				}
				require.NoError(t, err)
				require.Equal(t, c.size, l.SizeBytes)
				require.Equal(t, a.block, l.Block)
				again, err := r.backend.Plan(q)
				require.NoError(t, err)
				require.Equal(t, l, again)
			})
		}
	}
	t.Run("an unknown parameter is named", func(t *testing.T) {
		t.Parallel()
		_, err := r.backend.Plan(backends.Request{Block: true, Parameters: map[string]string{"no-such-parameter": "1"}})
		require.ErrorContains(t, err, "no-such-parameter")
	})
	t.Run("an unknown file system is named, and those that are known", func(t *testing.T) {
		t.Parallel()
		_, err := r.backend.Plan(backends.Request{Filesystem: true, FSTypes: []string{"no-such-type"}})
		require.ErrorIs(t, err, backends.ErrInvalid)
		require.ErrorContains(t, err, "no-such-type")
		known := slices.ContainsFunc(h.Filesystems, func(f Filesystem) bool { return f.Type != "" })
		for _, f := range h.Filesystems {
			if known {
				require.ErrorContains(t, err, f.Type)
			}
		}
	})
	t.Run("too small for a file system", func(t *testing.T) {
		t.Parallel()
		for _, f := range h.Filesystems {
			q := backends.Request{Filesystem: true, RequiredBytes: 1, FSTypes: []string{f.Type}}
			if f.Type == "" {
				q.FSTypes = nil
			}
			l, err := r.backend.Plan(q)
			require.NoError(t, err)
			require.Zero(t, l.SizeBytes%backends.Granularity)
			if l.SizeBytes == backends.Granularity {
				continue // this one has no smallest size
			}
			q.LimitBytes = l.SizeBytes - 1
			_, err = r.backend.Plan(q)
			require.ErrorIs(t, err, backends.ErrOutOfRange)
		}
	})
}
