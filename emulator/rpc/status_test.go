package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/internal/kernel"
)

type silent struct{}

func (silent) Error() string { return "" }

func TestStatus(t *testing.T) {
	t.Parallel()
	detailed, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "x"})
	require.NoError(t, err)
	cases := map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"invalid":        {fmt.Errorf("parse size %q: %w", "x", backends.ErrInvalid), 3, `parse size "x"`},
		"not found":      {fmt.Errorf("find volume v: %w", backends.ErrNotFound), 5, "find volume v"},
		"exists":         {fmt.Errorf("create v: %w", backends.ErrExists), 6, "create v"},
		"exhausted":      {fmt.Errorf("reserve: %w", backends.ErrExhausted), 8, "reserve"},
		"precondition":   {fmt.Errorf("%w: v is attached to n", backends.ErrPrecondition), 9, "failed precondition: v is attached to n"},
		"data loss":      {fmt.Errorf("stage v: %w", backends.ErrDataLoss), 9, "stage v"},
		"kernel":         {fmt.Errorf("grow v: %w", &kernel.NotSupportedError{Feature: kernel.SysResource, Reason: "EPERM"}), 9, "grow v: sys-resource is not supported here: EPERM"},
		"aborted":        {fmt.Errorf("page: %w", backends.ErrAborted), 10, "page"},
		"out of range":   {fmt.Errorf("size: %w", backends.ErrOutOfRange), 11, "size"},
		"unavailable":    {fmt.Errorf("ask the array: %w: %w", backends.ErrUnavailable, errors.New("EOF")), 14, "ask the array: unavailable: EOF"},
		"kind alone":     {backends.ErrNotFound, 5, "not found"},
		"cancelled":      {fmt.Errorf("copy v: %w", context.Canceled), 1, "copy v"},
		"deadline":       {fmt.Errorf("copy v: %w", context.DeadlineExceeded), 4, "copy v"},
		"deadline alone": {context.DeadlineExceeded, 4, "context deadline exceeded"},
		"kind before its cause": {
			fmt.Errorf("hold: %w: %w", backends.ErrUnavailable, context.DeadlineExceeded), 14, "hold: unavailable: context deadline exceeded",
		},
		"outermost kind wins": {
			fmt.Errorf("%w: stage: %w", backends.ErrPrecondition, fmt.Errorf("device: %w", backends.ErrNotFound)), 9,
			"failed precondition: stage: device: not found",
		},
		"joined": {errors.Join(errors.New("a"), backends.ErrAborted), 10, "a\naborted"},
		"status": {status.Error(codes.PermissionDenied, "no"), 7, "no"},
		"wrapped status": {
			fmt.Errorf("ask: %w", status.Error(codes.Unauthenticated, "who are you?")), 16, "ask: who are you?",
		},
		"status with details":         {detailed.Err(), 5, "gone"},
		"status of an unknown code":   {status.Error(codes.Code(99), "odd"), 13, "odd"},
		"status without text":         {status.Error(codes.NotFound, ""), 5, "the call failed without a reason: NotFound"},
		"anything else":               {fmt.Errorf("open: %w", fs.ErrPermission), 13, "open: permission denied"},
		"an error without text":       {silent{}, 13, "the call failed without a reason: Internal"},
		"an error that is not UTF-8":  {errors.New("bad \xff name"), 13, "bad \uFFFD name"},
		"an error with a line at end": {errors.New("mkfs failed\n"), 13, "mkfs failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ok := status.FromError(rpc.Status(c.err))
			require.True(t, ok)
			require.Equal(t, c.code, s.Code())
			require.Equal(t, c.text, s.Message())
			require.Empty(t, s.Details())
			require.Equal(t, rpc.Status(c.err).Error(), rpc.Status(rpc.Status(c.err)).Error(), "a status stays what it is")
		})
	}
	require.NoError(t, rpc.Status(nil))
}

func TestStatusMessagesFitIntoHeaders(t *testing.T) {
	t.Parallel()
	for shift := range 4 {
		err := rpc.Status(errors.New(strings.Repeat("x", shift) + strings.Repeat("é€", 1000)))
		text := status.Convert(err).Message()
		require.LessOrEqual(t, len(text), 2048)
		require.Greater(t, len(text), 2000)
		require.True(t, utf8.ValidString(text))
		require.True(t, strings.HasSuffix(text, "…"))
	}
}
