package record

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode gives the decoder what a damaged disk may hold. It must say either
// that the record is damaged or newer, or give data that is whole, and what it
// gives must survive a second way through the store.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "null", "[]", "0", sound, sound + "\n", sound[:30], sound + "x",
		strings.Replace(sound, "1", "2", 1), strings.Replace(sound, `"bad"`, `"b\u0061d"`, 1),
		strings.Replace(sound, `"kind"`, `"KIND"`, 1), `{"version":1e0,"kind":"volumes","id":"bad","data":[1.50,"\ud800"]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		data, err := decode("volumes", "bad", b)
		if err != nil {
			require.True(t, errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer), err)
			require.Nil(t, data)
			require.Less(t, len(err.Error()), 1000)
			return
		}
		require.True(t, json.Valid(data))
		again, err := encode("volumes", "bad", data)
		require.NoError(t, err)
		second, err := decode("volumes", "bad", again)
		require.NoError(t, err)
		require.JSONEq(t, string(data), string(second))
		_, err = decode("snapshots", "bad", again)
		require.ErrorIs(t, err, ErrDamaged)
	})
}
