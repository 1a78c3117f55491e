package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/csiemu/csiemu/conformance"
)

// undoLimit is how long an interrupted row may take things away: several calls at
// their deadline.
const undoLimit = 3

// checkRow runs a row. The error says that ctx ended meanwhile, in which row, and
// what that could not take away: volumes, snapshots and paths, by their ids.
func checkRow(ctx context.Context, test conformance.Test, target *conformance.Target) (conformance.Result, error) {
	row := test.RPC + ": " + test.Name
	done := make(chan conformance.Result, 1)
	// Check takes away what the row made also after ctx has ended.
	go func() { done <- test.Check(ctx, target) }()
	var result conformance.Result
	select {
	case result = <-done:
	case <-ctx.Done():
		limit := undoLimit * target.Timeout
		late := time.NewTimer(limit)
		defer late.Stop()
		select {
		case result = <-done:
		case <-late.C:
			return result, fmt.Errorf("row %q did not take away within %s what it made: look for names and paths with \"conformance-\" in them, as below %s", row, limit, target.Dir)
		}
	}
	if ctx.Err() == nil {
		return result, nil
	}
	// What else failed is of no interest: its calls were cut off.
	if len(result.Left) > 0 {
		return result, fmt.Errorf("row %q left behind: %s", row, strings.Join(result.Left, "; "))
	}
	return result, fmt.Errorf("row %q left nothing behind", row)
}
