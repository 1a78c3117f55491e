package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// lines prints the walk: one aligned line a step.
type lines struct {
	w     io.Writer
	steps int
}

// heading begins the walk of one volume.
func (l *lines) heading(format string, args ...any) {
	fmt.Fprintf(l.w, "\n%s\n", fmt.Sprintf(format, args...))
}

// step prints what a step did, the checksum that was compared (empty if none
// was) and how long it took.
func (l *lines) step(name, what, sum string, took time.Duration) {
	l.steps++
	if sum != "" {
		sum = "sha256 " + sum
	}
	fmt.Fprintf(l.w, "  %-10s %-58s %-17s %10s\n", name, what, sum, milliseconds(took))
}

// noteWidth is where the lines of a note break.
const noteWidth = 88

// note explains the step before.
func (l *lines) note(format string, args ...any) {
	line := ""
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if line != "" && len(line)+1+len(word) > noteWidth {
			fmt.Fprintf(l.w, "  %-10s %s\n", "", line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	fmt.Fprintf(l.w, "  %-10s %s\n", "", line)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// size is a size as a person reads it.
func size(bytes int64) string {
	const mib = 1 << 20
	switch {
	case bytes >= 1<<30 && bytes%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes%mib == 0:
		return fmt.Sprintf("%d MiB", bytes/mib)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
}
