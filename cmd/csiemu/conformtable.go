package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/csiemu/csiemu/conformance"
)

// conformReport is what conform finds; its JSON form is for programs.
type conformReport struct {
	Driver  string               `json:"driver"`
	Version string               `json:"version"`
	Passed  int                  `json:"passed"`
	Failed  int                  `json:"failed"`
	Skipped int                  `json:"skipped"`
	Rows    []conformance.Result `json:"rows"`
}

func (r *conformReport) add(result conformance.Result) {
	r.Rows = append(r.Rows, result)
	switch result.Outcome {
	case conformance.Pass:
		r.Passed++
	case conformance.Fail:
		r.Failed++
	case conformance.Skip:
		r.Skipped++
	}
}

// conformTable prints rows while they end.
type conformTable struct {
	out io.Writer
	// width is that of the column of RPCs; 0 for JSON, which has no columns.
	width int
}

func newTable(out io.Writer, tests []conformance.Test, output string) conformTable {
	t := conformTable{out: out}
	if output == "json" {
		return t
	}
	for _, test := range tests {
		t.width = max(t.width, len(test.RPC))
	}
	return t
}

func (t conformTable) begin(r conformReport) {
	if t.width > 0 {
		fmt.Fprintf(t.out, "%s %s against CSI 1.13\n\n", r.Driver, r.Version)
	}
}

// row is a line, with the clause and what came instead below a row that failed,
// and the reason below one that was skipped.
func (t conformTable) row(r conformance.Result) {
	if t.width == 0 {
		return
	}
	fmt.Fprintf(t.out, "%s  %-6s  %-*s  %s\n", r.Outcome, r.Level, t.width, r.RPC, r.Name)
	var lines []string
	if r.Outcome == conformance.Fail {
		lines = wrap("clause: " + r.Clause)
	}
	for _, line := range append(lines, wrap(r.Detail)...) {
		fmt.Fprintf(t.out, "%*s%s\n", len("pass  should  ")+t.width+4, "", line)
	}
}

func (t conformTable) end(r conformReport) error {
	if t.width == 0 {
		encoder := json.NewEncoder(t.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	seconds := 0.0
	for _, row := range r.Rows {
		seconds += row.Seconds
	}
	_, err := fmt.Fprintf(t.out, "\n%d rows in %.1f s: %d passed, %d failed, %d skipped\n", len(r.Rows), seconds, r.Passed, r.Failed, r.Skipped)
	return err
}

// listRows prints the rows without running them.
func listRows(out io.Writer, tests []conformance.Test, output string) error {
	if output == "json" {
		rows := make([]conformance.Result, 0, len(tests))
		for _, test := range tests {
			rows = append(rows, conformance.Result{RPC: test.RPC, Name: test.Name, Clause: test.Clause, Level: test.Level})
		}
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	t := newTable(out, tests, output)
	var b strings.Builder
	for _, test := range tests {
		fmt.Fprintf(&b, "%-6s  %-*s  %s\n%*s%s\n", test.Level, t.width, test.RPC, test.Name, len("should  ")+t.width+4, "", test.Clause)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
