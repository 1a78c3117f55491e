package link

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/rpc"
)

// kinds are the codes that carry the kinds of errors over the link. Unlike
// CSI's, they tell lost data and what is held already from other
// preconditions.
var kinds = map[codes.Code]error{
	codes.InvalidArgument:    backends.ErrInvalid,
	codes.NotFound:           backends.ErrNotFound,
	codes.AlreadyExists:      backends.ErrExists,
	codes.ResourceExhausted:  backends.ErrExhausted,
	codes.FailedPrecondition: backends.ErrPrecondition,
	codes.DataLoss:           backends.ErrDataLoss,
	codes.Aborted:            backends.ErrAborted,
	codes.Unimplemented:      backends.ErrHeld,
	codes.OutOfRange:         backends.ErrOutOfRange,
	codes.Unavailable:        backends.ErrUnavailable,
	codes.Unauthenticated:    backends.ErrUnauthenticated,
	codes.Canceled:           context.Canceled,
	codes.DeadlineExceeded:   context.DeadlineExceeded,
}

// encode makes a status of an error, for the other side.
func encode(err error) *status.Status {
	s := status.Convert(rpc.Status(err))
	switch {
	case s.Code() != codes.FailedPrecondition:
		return s
	case errors.Is(err, backends.ErrDataLoss):
		return status.New(codes.DataLoss, s.Message())
	case errors.Is(err, backends.ErrHeld):
		return status.New(codes.Unimplemented, s.Message())
	}
	return s
}

// decode makes an error of what the other side answered; nil for OK.
func decode(code codes.Code, text string) error {
	switch kind := kinds[code]; {
	case code == codes.OK:
		return nil
	case kind == nil:
		return errors.New(text)
	default:
		return &answered{text, kind}
	}
}

// answered is an error of the other side. Its kind is not in the text again.
type answered struct {
	text string
	kind error
}

// Error returns the text that the other side gave.
func (e *answered) Error() string { return e.text }

// Unwrap returns the kind.
func (e *answered) Unwrap() error { return e.kind }
