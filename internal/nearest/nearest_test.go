package nearest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/nearest"
)

func TestWord(t *testing.T) {
	t.Parallel()
	candidates := []string{"pool", "provisioning", "directIO", "breakable", "authFor", "authKey"}
	for name, test := range map[string]struct{ word, want string }{
		"a letter is missing":      {"brekable", "breakable"},
		"a letter too many":        {"pools", "pool"},
		"another letter":           {"breakeble", "breakable"},
		"two letters are swapped":  {"braekable", "breakable"},
		"another case":             {"DIRECTio", "directIO"},
		"dashes between the words": {"direct-io", "directIO"},
		"two are as near":          {"authXXX", ""},
		"the first of two":         {"auth", ""},
		"nothing like any":         {"colour", ""},
		"a short word":             {"x", ""},
		"nothing":                  {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, nearest.Word(test.word, candidates))
		})
	}
	require.Equal(t, "ab", nearest.Word("aa", []string{"ac", "ab"}), "of two that are as near, the first by name")
	require.Empty(t, nearest.Word("anything", nil))
}
