package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTablesAreAligned(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, writeTable(&out, []string{"ID", "NOTE"}, [][]string{{"vol-1", "é"}, {"v", ""}}))
	require.Equal(t, "ID     NOTE\nvol-1  é\nv\n", out.String())

	out.Reset()
	c, err := newColumns(&out, []string{"ID", "CODE", "NOTE"}, 4, 4, 4)
	require.NoError(t, err)
	require.NoError(t, c.add([]string{"1", "OK", ""}))
	require.NoError(t, c.add([]string{"123456", "OK", "wide"}))
	require.NoError(t, c.add([]string{"7", "gone"}))
	require.Equal(t, "ID    CODE  NOTE\n1     OK\n123456  OK    wide\n7       gone\n", out.String())
}
