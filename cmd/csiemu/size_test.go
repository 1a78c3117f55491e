package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPools(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		values []string
		want   map[string]int64
	}{
		"none":                          {nil, map[string]int64{}},
		"bytes":                         {[]string{"4096"}, map[string]int64{"default": 4096}},
		"powers of two and of ten":      {[]string{"10GiB", "a=500M", "b=1Ti"}, map[string]int64{"default": 10 << 30, "a": 500_000_000, "b": 1 << 40}},
		"a fraction":                    {[]string{"a=1.5GiB"}, map[string]int64{"a": 3 << 29}},
		"a name with a sign in the way": {[]string{"a=b=1"}, nil},
		"no name":                       {[]string{"=1"}, nil},
		"no size":                       {[]string{"a="}, nil},
		"nothing":                       {[]string{""}, nil},
		"zero":                          {[]string{"0"}, nil},
		"below zero":                    {[]string{"-1GiB"}, nil},
		"more than int64":               {[]string{"8EiB"}, nil},
		"more than uint64":              {[]string{"99EiB"}, nil},
		"no number":                     {[]string{"GiB"}, nil},
		"the same twice":                {[]string{"1", "default=1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parsePools(test.values)
			if test.want == nil {
				require.ErrorAs(t, err, &usageError{})
				require.ErrorContains(t, err, "--capacity")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}
