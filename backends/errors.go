package backends

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure that a backend, the array or a node reports. They are
// wrapped with %w behind a text that says what was wanted and on what, matched
// with errors.Is, and turned into gRPC codes in one place (emulator/rpc).
var (
	// ErrInvalid is returned when a request can never be served as it was
	// written: INVALID_ARGUMENT.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound is returned when a volume, snapshot, node or path does not
	// exist: NOT_FOUND.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned when the name or path is in use by something that
	// is not compatible with the request: ALREADY_EXISTS.
	ErrExists = errors.New("already exists")
	// ErrPrecondition is returned when the state of the volume, the node or the
	// kernel forbids the operation now: FAILED_PRECONDITION.
	ErrPrecondition = errors.New("failed precondition")
	// ErrExhausted is returned when space, an attach limit or a topology leaves
	// no room: RESOURCE_EXHAUSTED.
	ErrExhausted = errors.New("resource exhausted")
	// ErrOutOfRange is returned when a size cannot be had: OUT_OF_RANGE.
	ErrOutOfRange = errors.New("out of range")
	// ErrAborted is returned when another operation is under way, or when a
	// page token is not known any more: ABORTED.
	ErrAborted = errors.New("aborted")
	// ErrUnavailable is returned when another process that is needed does not
	// answer; the call may be repeated: UNAVAILABLE.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnauthenticated is returned when the secrets of a call are not those
	// that the class of the volume demands: UNAUTHENTICATED.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrDataLoss is returned when the bytes of a volume are gone, as those of
	// a tmpfs volume after a reboot. Callers see FAILED_PRECONDITION, never an
	// empty volume.
	ErrDataLoss = errors.New("data lost")
)

// ErrHeld is returned by Hold when the volume's bytes are still already, as
// those of a file system that another node of the same kernel has frozen.
var ErrHeld = errors.New("already held")

// UnknownParameterError is the ErrInvalid of Backend.Plan for a StorageClass
// parameter that the backend does not have.
type UnknownParameterError struct {
	// Key is the parameter, Known are those that there are, in order.
	Key   string
	Known []string
	// Near is the one that may have been meant, if somebody has looked for it.
	Near string
}

// Error names the parameter and those that are known.
func (e *UnknownParameterError) Error() string {
	hint := ""
	if e.Near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", e.Near)
	}
	return fmt.Sprintf("parameter %q is not known%s; known are %s", e.Key, hint, strings.Join(e.Known, ", "))
}

// Unwrap is ErrInvalid.
func (e *UnknownParameterError) Unwrap() error { return ErrInvalid }
