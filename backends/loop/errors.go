//go:build linux

package loop

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/csiemu/csiemu/backends"
)

// classify gives the errors of a store that is full, or cannot have a file so
// large, their kind.
func classify(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", err, backends.ErrExhausted)
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", err, backends.ErrOutOfRange)
	}
	return err
}

// invalid marks err as a mistake of the request.
func invalid(err error) error {
	if errors.Is(err, backends.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", err, backends.ErrInvalid)
}

// precondition marks err as one of the state that things are in.
func precondition(err error) error {
	if errors.Is(err, backends.ErrPrecondition) {
		return err
	}
	return fmt.Errorf("%w: %w", err, backends.ErrPrecondition)
}
