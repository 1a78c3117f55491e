package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParsePools reads values of --capacity.
func FuzzParsePools(f *testing.F) {
	for _, text := range []string{"10GiB", "fast=1Gi,slow=2TB", "=1", "a=", "a=0", "a=1,a=2", "a=b=1", "1e99", "8EiB", ",", "a=-1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values := strings.Split(text, ",")
		pools, err := parsePools(values)
		if err != nil {
			require.Nil(t, pools)
			require.NotEmpty(t, err.Error())
			return
		}
		require.Len(t, pools, len(values))
		for name, size := range pools {
			require.NotEmpty(t, name)
			require.Positive(t, size)
		}
	})
}
