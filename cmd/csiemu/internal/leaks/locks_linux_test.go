package leaks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const someLocks = `1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF
2: FLOCK  ADVISORY  WRITE 3517 fe:00:2531448 0 EOF
2: -> FLOCK  ADVISORY  WRITE 3518 fe:00:2531448 0 EOF
3: FLOCK  ADVISORY  READ  3519 00:2d:7 0 EOF
4: LEASE  ACTIVE    READ  3520 fe:00:99 0 EOF

5: FLOCK
6: FLOCK  ADVISORY  WRITE 3517 fe:00:many 0 EOF
`

func TestLocksAreThoseOfWholeFiles(t *testing.T) {
	t.Parallel()
	held, err := parseLocks(strings.NewReader(someLocks))
	require.NoError(t, err)
	require.Equal(t, locks{2531448: true, 7: true}, held)
}

func FuzzParseLocks(f *testing.F) {
	f.Add(someLocks)
	f.Fuzz(func(t *testing.T, text string) {
		held, err := parseLocks(strings.NewReader(text))
		if err == nil && len(held) > 0 {
			require.Contains(t, text, "FLOCK")
		}
	})
}
