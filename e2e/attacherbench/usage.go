package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is how many clock ticks a second has in /proc (proc_pid_stat(5)); on Linux
// it is 100 for every program.
const ticks = 100

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name may have spaces; the fields behind it do not.
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	var sum int64
	for _, i := range []int{11, 12} { // utime and stime
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// residentOf is the resident memory of a process, in bytes.
func residentOf(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: it has none", pid)
}

// writes is how many requests to change volumes and VolumeAttachments the API server
// has had.
func (w *world) writes(ctx context.Context) (int, error) {
	data, err := w.plane.Client.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !isWrite(line) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, '}')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("read the metrics of the API server: %w", err)
		}
		sum += n
	}
	return int(sum), nil
}

func isWrite(line string) bool {
	// The controllers that mark volumes as available use PUT, attachers never do.
	verb := strings.Contains(line, `verb="PATCH"`) || strings.Contains(line, `verb="APPLY"`)
	return verb && (strings.Contains(line, `resource="volumeattachments"`) || strings.Contains(line, `resource="persistentvolumes"`))
}
