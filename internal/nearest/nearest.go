// Package nearest finds the word that somebody meant who mistyped it.
package nearest

import (
	"slices"
	"strings"
)

// Word returns the candidate that is nearest to a word, by the number of letters
// that were left out, added, changed or swapped with their neighbour; case and the
// dashes of words count for nothing. "" is returned where none is near: more than a
// quarter of the word's letters would have to change.
func Word(word string, candidates []string) string {
	limit := max(1, len(plain(word))/4)
	found, least := "", limit+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(plain(word), plain(c)); d < least {
			found, least = c, d
		}
	}
	return found
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// distance is the optimal string alignment distance, in bytes.
func distance(a, b string) int {
	two, one := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := one[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(one[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one = one, row
	}
	return one[len(b)]
}
