package conformance

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Outcome is how a row ended.
type Outcome string

const (
	// Pass means that the driver keeps to the clause.
	Pass Outcome = "pass"
	// Fail means that it does not, or left something behind.
	Fail Outcome = "fail"
	// Skip means that the driver, or what the Target says of it, has no use for
	// the clause.
	Skip Outcome = "skip"
)

// Result is the outcome of a row. Its JSON form is what `csiemu conform -o json`
// prints.
type Result struct {
	RPC     string  `json:"rpc"`
	Name    string  `json:"name"`
	Clause  string  `json:"clause"`
	Level   Level   `json:"level"`
	Outcome Outcome `json:"outcome"`
	// Detail is what was wanted and what came instead, or why the row was
	// skipped; empty for Pass.
	Detail string `json:"detail,omitempty"`
	// Left is what the row made and could not take away, each with the reason.
	Left []string `json:"left,omitempty"`
	// Seconds is how long the row took.
	Seconds float64 `json:"seconds"`
}

// Check runs the row outside of go test. It returns when everything that the row
// made is taken away, also after ctx has ended.
func (t Test) Check(ctx context.Context, target *Target) Result {
	began := time.Now()
	r := &recorder{ctx: ctx}
	r.do(func() { t.Run(r, target) })
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		r.do(last)
	}
	result := Result{RPC: t.RPC, Name: t.Name, Clause: t.Clause, Level: t.Level, Outcome: Pass, Left: r.left, Seconds: time.Since(began).Seconds()}
	switch {
	case len(r.errors) > 0:
		result.Outcome, result.Detail = Fail, strings.Join(r.errors, "; ")
	case r.skipped:
		result.Outcome, result.Detail = Skip, r.reason
	}
	return result
}

// recorder is a T that keeps what a row says. A row has one goroutine at a time,
// for which do waits.
type recorder struct {
	ctx      context.Context
	cleanups []func()
	errors   []string
	left     []string
	skipped  bool
	reason   string
}

// do calls f on a goroutine of its own, which FailNow and Skipf end.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("the row panicked: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Helper()                  {}
func (r *recorder) Logf(string, ...any)      {}

// FailNow ends a row that has said why.
func (r *recorder) FailNow() {
	if len(r.errors) == 0 {
		r.Errorf("the row failed")
	}
	runtime.Goexit()
}

func (r *recorder) Errorf(format string, args ...any) {
	if e := fmt.Sprintf(format, args...); !slices.Contains(r.errors, e) {
		r.errors = append(r.errors, e)
	}
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped, r.reason = true, fmt.Sprintf(format, args...)
	runtime.Goexit()
}
