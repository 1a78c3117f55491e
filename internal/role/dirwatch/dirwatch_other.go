//go:build !linux

package dirwatch

import (
	"context"
	"errors"
	"fmt"
)

func watch(_ context.Context, dir string) (<-chan struct{}, error) {
	return nil, fmt.Errorf("watch directory %s: %w", dir, errors.ErrUnsupported)
}
