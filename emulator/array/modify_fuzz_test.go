package array

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/backends"
)

// FuzzParseMutable reads what a VolumeAttributesClass may hold.
func FuzzParseMutable(f *testing.F) {
	for _, c := range [][2]string{
		{IOPSParameter, "100"},
		{IOPSParameter, "-1"},
		{IOPSParameter, "9223372036854775808"},
		{ThroughputParameter, "10MiB"},
		{ThroughputParameter, "8EiB"},
		{ThroughputParameter, "-1"},
		{LatencyParameter, "5ms"},
		{LatencyParameter, "-5ms"},
		{LatencyParameter, "1h"},
		{HealthParameter, "DEGRADED:Reason:a message: with colons"},
		{HealthParameter, "; ;DATA_LOSS"},
		{HealthParameter, ":::"},
		{"colour", "blue"},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		m, err := parseMutable(map[string]string{key: value})
		if err != nil {
			require.ErrorIs(t, err, backends.ErrInvalid)
			require.Zero(t, m)
			return
		}
		require.GreaterOrEqual(t, m.shaping.IOPS, int64(0))
		require.GreaterOrEqual(t, m.shaping.BytesPerSecond, int64(0))
		require.GreaterOrEqual(t, m.shaping.Latency, time.Duration(0))
		for _, c := range m.health {
			require.NotEmpty(t, c.Status)
		}
	})
}
