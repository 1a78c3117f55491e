// Package dirwatch tells when something in a directory changes.
package dirwatch

import "context"

// Watch returns a channel that gets a value after entries of a directory were made,
// removed or renamed; several changes may give one. It is closed when ctx ends, and
// when the directory itself goes away: watch anew then. The error is
// errors.ErrUnsupported except on Linux, where a caller has to look now and then.
func Watch(ctx context.Context, dir string) (<-chan struct{}, error) { return watch(ctx, dir) }
