package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

func printSpeed(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tattaches/s\tof bare\tdetaches/s\tof bare\twrites/attach\twrites/detach\tduplicate calls\tCPU/attach\tCPU/detach\t")
	floor := map[bool]row{}
	for _, r := range rows {
		if len(r.command) == 0 {
			floor[r.finalized] = r
		}
	}
	for _, r := range rows {
		of := floor[r.finalized]
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%.1f\t%s\t%.2f\t%.2f\t%d\t%s\t%s\t\n", r.name, r.attach.rate, ratio(r.attach.rate, of.attach.rate),
			r.detach.rate, ratio(r.detach.rate, of.detach.rate), r.attach.writes, r.detach.writes, r.attach.duplicates+r.detach.duplicates,
			each10us(r.attach.cpu), each10us(r.detach.cpu))
	}
	_ = w.Flush() // to a terminal or a pipe that somebody closed
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func each10us(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(10 * time.Microsecond).String()
}

func printMemory(out io.Writer, rows []resident) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tno object\tall\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.1f MiB\t%.1f MiB\t\n", r.name, mib(r.empty), mib(r.full))
	}
	_ = w.Flush()
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
