package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// columns writes rows under a header in aligned columns. Rows may come later: those
// that fit are aligned with the first ones.
type columns struct {
	out    io.Writer
	widths []int
}

// gap is what is between two columns.
const gap = "  "

// writeTable writes a whole table; nothing but the header if there are no rows.
func writeTable(out io.Writer, header []string, rows [][]string) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, len(gap), ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// newColumns begins a table to which rows are added as they come, with columns at
// least as wide as widths.
func newColumns(out io.Writer, header []string, widths ...int) (*columns, error) {
	t := &columns{out: out, widths: widths}
	return t, t.add(header)
}

func (t *columns) add(row []string) error {
	var b strings.Builder
	for i, cell := range row {
		if i == len(row)-1 {
			b.WriteString(cell)
			break
		}
		if n := utf8.RuneCountInString(cell); n > t.widths[i] {
			t.widths[i] = n
		}
		fmt.Fprintf(&b, "%-*s%s", t.widths[i], cell, gap)
	}
	_, err := fmt.Fprintln(t.out, strings.TrimRight(b.String(), " "))
	return err
}
