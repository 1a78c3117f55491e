//go:build linux

package filesystem_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/filesystem"
)

// Fills predicts the size that the tools choose, for sizes that nobody chose.
func TestFillsAgreesWithTheTools(t *testing.T) {
	t.Parallel()
	needType(t, filesystem.Ext4)
	maker := shared()
	random := rand.New(rand.NewPCG(1, 2))
	sizes := 12
	if testing.Short() {
		sizes = 3
	}
	for range sizes {
		// Small file systems have small groups, so that ends of all lengths
		// come up. 1 KiB blocks up to 512 MiB, then 4 KiB.
		from := (4*mebibyte + random.Int64N(700*mebibyte)) / 4096 * 4096
		to := from + random.Int64N(700*mebibyte)/4096*4096
		t.Run(fmt.Sprintf("%d to %d KiB", from/kibibyte, to/kibibyte), func(t *testing.T) {
			t.Parallel()
			image := newFilesystem(t, maker, filesystem.Ext4, from)
			require.True(t, probe(t, image).Fills(from))
			require.NoError(t, run(t, "resize2fs", image), "fills what mkfs left")
			require.True(t, probe(t, image).Fills(from))

			require.NoError(t, os.Truncate(image, to))
			before := probe(t, image)
			require.NoError(t, run(t, "resize2fs", image))
			after := probe(t, image)
			require.Equal(t, before.SizeBytes == after.SizeBytes, before.Fills(to))
			require.True(t, after.Fills(to))
		})
	}
}
