//go:build linux

package loop_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	const gibibyte = 1 << 30
	r := newRig(t)
	tests := map[string]struct {
		request backends.Request
		layout  backends.Layout
		err     error
		text    string
	}{
		"nothing asked for":               {request: backends.Request{Filesystem: true}, layout: backends.Layout{SizeBytes: gibibyte}},
		"raw block":                       {request: backends.Request{Block: true}, layout: backends.Layout{SizeBytes: gibibyte, Block: true}},
		"raw block and a file system":     {request: backends.Request{Block: true, Filesystem: true}, layout: backends.Layout{SizeBytes: gibibyte}},
		"a small raw block volume":        {request: backends.Request{Block: true, RequiredBytes: 1}, layout: backends.Layout{SizeBytes: 4096, Block: true}},
		"a size that is no multiple":      {request: backends.Request{Filesystem: true, RequiredBytes: gibibyte + 1}, layout: backends.Layout{SizeBytes: gibibyte + 4096}},
		"less than xfs can have":          {request: backends.Request{Filesystem: true, FSTypes: []string{"xfs"}, RequiredBytes: 1}, layout: backends.Layout{SizeBytes: 300 * mebibyte}},
		"less than btrfs can have":        {request: backends.Request{Filesystem: true, FSTypes: []string{"btrfs"}, RequiredBytes: 1}, layout: backends.Layout{SizeBytes: 256 * mebibyte}},
		"btrfs that cannot be resized":    {request: backends.Request{Filesystem: true, FSTypes: []string{"btrfs"}, MinBytes: 128 * mebibyte, LimitBytes: 200 * mebibyte}, err: backends.ErrOutOfRange},
		"less than xfs, and a limit":      {request: backends.Request{Filesystem: true, FSTypes: []string{"xfs"}, LimitBytes: 299 * mebibyte}, err: backends.ErrOutOfRange},
		"a limit below the default":       {request: backends.Request{Filesystem: true, LimitBytes: 10*mebibyte + 1}, layout: backends.Layout{SizeBytes: 10 * mebibyte}},
		"exactly a multiple":              {request: backends.Request{Block: true, RequiredBytes: 8192, LimitBytes: 8192}, layout: backends.Layout{SizeBytes: 8192, Block: true}},
		"exactly no multiple":             {request: backends.Request{Block: true, RequiredBytes: 8193, LimitBytes: 8193}, err: backends.ErrOutOfRange},
		"a limit below the source":        {request: backends.Request{Block: true, LimitBytes: 4096, MinBytes: 8192}, err: backends.ErrOutOfRange},
		"the size of the source":          {request: backends.Request{Block: true, MinBytes: 8192}, layout: backends.Layout{SizeBytes: 8192, Block: true}},
		"more than a file can have":       {request: backends.Request{Block: true, RequiredBytes: math.MaxInt64}, err: backends.ErrOutOfRange},
		"a file system of another world":  {request: backends.Request{Filesystem: true, FSTypes: []string{"ntfs"}}, err: backends.ErrInvalid, text: "ntfs"},
		"two file systems":                {request: backends.Request{Filesystem: true, FSTypes: []string{"ext4", "xfs"}}, err: backends.ErrInvalid, text: "ext4 and xfs"},
		"thick and direct":                {request: backends.Request{Block: true, Parameters: map[string]string{"provisioning": "thick", "directIO": "true"}}, layout: backends.Layout{SizeBytes: gibibyte, Block: true, Thick: true, DirectIO: true}},
		"the defaults by name":            {request: backends.Request{Block: true, Parameters: map[string]string{"provisioning": "thin", "directIO": "false"}}, layout: backends.Layout{SizeBytes: gibibyte, Block: true}},
		"an unknown parameter":            {request: backends.Request{Block: true, Parameters: map[string]string{"tier": "gold"}}, err: backends.ErrInvalid, text: "known are breakable, directIO, provisioning"},
		"an unknown value of a parameter": {request: backends.Request{Block: true, Parameters: map[string]string{"provisioning": "fat"}}, err: backends.ErrInvalid, text: "known are thick, thin"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layout, err := r.backend.Plan(test.request)
			require.ErrorIs(t, err, test.err)
			if test.err != nil {
				require.ErrorContains(t, err, test.text)
			}
			require.Equal(t, test.layout, layout)
		})
	}
}
