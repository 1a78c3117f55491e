package emulator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// FuzzParseSize reads what a pod may write as the size of its inline volume.
func FuzzParseSize(f *testing.F) {
	for _, text := range []string{
		"", "0", "1", "64Mi", "1GiB", "500M", "2 GB", "-1", "1e3", "9223372036854775807", "9223372036854775808",
		"18446744073709551615", "8EiB", "1,000", "NaN", "Inf", ".5Ki", "0x10", " ", "Mi",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseSize(text)
		if err != nil {
			require.ErrorIs(t, err, backends.ErrInvalid)
			require.Zero(t, n)
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		again, err := parseSize(text)
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}
