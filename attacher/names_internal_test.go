package attacher

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFinalizerOfADriver(t *testing.T) {
	t.Parallel()
	for driver, want := range map[string]string{
		"letters123":            "external-attacher/letters123",
		"with-dash":             "external-attacher/with-dash",
		"dots.and_underscores":  "external-attacher/dots-and-underscores",
		"any/other, such as ü.": "external-attacher/any-other--such-as---X",
		"dash-at-the-end-":      "external-attacher/dash-at-the-end-X",
		"UPPER":                 "external-attacher/UPPER",
	} {
		require.Equal(t, want, finalizerOf(driver), driver)
	}
}
