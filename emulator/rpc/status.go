package rpc

import (
	"context"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/kernel"
)

// maxMessage bounds a status message in bytes. It travels in a header, which
// clients in other languages limit to 8 KiB, up to three times as long.
const maxMessage = 2048

// kinds are the codes of the failures that the emulator knows.
var kinds = []struct {
	err  error
	code codes.Code
}{
	{backends.ErrInvalid, codes.InvalidArgument},
	{backends.ErrNotFound, codes.NotFound},
	{backends.ErrExists, codes.AlreadyExists},
	{backends.ErrExhausted, codes.ResourceExhausted},
	{backends.ErrPrecondition, codes.FailedPrecondition},
	{backends.ErrDataLoss, codes.FailedPrecondition},
	{backends.ErrHeld, codes.FailedPrecondition},
	{kernel.ErrNotSupported, codes.FailedPrecondition},
	{backends.ErrAborted, codes.Aborted},
	{backends.ErrOutOfRange, codes.OutOfRange},
	{backends.ErrUnavailable, codes.Unavailable},
	{backends.ErrUnauthenticated, codes.Unauthenticated},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// Status turns an error into the gRPC status of a CSI reply; nil stays nil. The
// code follows the kind of the error (backends.Err…), the outermost and first
// one where an error wraps several. An error that is a status already keeps its
// code; everything else is INTERNAL. The message is never empty, valid UTF-8
// and at most 2 KiB long, and details are always empty, as the specification
// ("Error Scheme") demands.
func Status(err error) error {
	if err == nil {
		return nil
	}
	code, text := classify(err)
	return status.Error(code, readable(text, code))
}

// classify returns the code of an error and its text without what the code says
// already.
func classify(err error) (codes.Code, string) {
	text := err.Error()
	code, found := codeOf(err)
	if found == nil {
		return codes.Internal, text
	}
	if s, ok := found.(interface{ GRPCStatus() *status.Status }); ok {
		// "rpc error: code = … desc = …" is not for people.
		return code, strings.Replace(text, found.Error(), s.GRPCStatus().Message(), 1)
	}
	return code, strings.TrimSuffix(text, ": "+found.Error())
}

// codeOf walks through a tree of errors, outermost and leftmost first, to the
// first that has a code, and returns that one too; nil if there is none.
func codeOf(err error) (codes.Code, error) {
	for _, kind := range kinds {
		if is(err, kind.err) {
			return kind.code, kind.err
		}
	}
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		if code := s.GRPCStatus().Code(); code > codes.OK && code <= codes.Unauthenticated {
			return code, err
		}
		// The specification allows the canonical codes only.
		return codes.Internal, err
	}
	switch wrapper := err.(type) { //nolint:errorlint // this is the walk through what is wrapped
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil {
			return codeOf(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if code, found := codeOf(inner); found != nil {
				return code, found
			}
		}
	}
	return codes.Internal, nil
}

// is is errors.Is for one error, not for what it wraps.
func is(err, kind error) bool {
	if err == kind { //nolint:errorlint // what err wraps has its own turn
		return true
	}
	matcher, ok := err.(interface{ Is(error) bool })
	return ok && matcher.Is(kind)
}

// readable makes a message that may travel.
func readable(text string, code codes.Code) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if text == "" {
		return "the call failed without a reason: " + code.String()
	}
	if len(text) <= maxMessage {
		return text
	}
	const more = " …"
	end := maxMessage - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
