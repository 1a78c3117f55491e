// Package step names the points between the steps of csiemu's work: after each
// change of the world (a record, a file, a device, a mount, a freeze) the code
// says what it has done. A fault stops the work there, by a crash or by an
// error; a test kills the process at every one of them.
//
// Who listens comes with the context, so that one call can be stopped and
// another at its side goes on. Nobody listens as a rule, and then a point costs
// a look into the context.
package step

import (
	"context"
	"slices"
)

// Step is a point that can be named in a fault.
type Step struct {
	// Name is what Done is called with: the part of csiemu, the thing, and what
	// has become of it.
	Name string
	// After says what has been done when the point is reached, and what not.
	After string
	// During are the RPCs that pass the point, and Start where start-up does.
	// Each passes it under some circumstances, not always.
	During []string
}

// Start stands for the start of a process among the RPCs of a Step.
const Start = "start"

// Listener is told of each point that is passed, in the goroutine that does the
// work. An error is returned to the code at the point, which takes it for a
// failure of its next step.
type Listener func(ctx context.Context, name string) error

type key struct{}

// With returns a context in which l listens. Listeners of ctx go on to listen,
// after l and only if it returns nil.
func With(ctx context.Context, l Listener) context.Context {
	if outer, ok := ctx.Value(key{}).(Listener); ok {
		inner := l
		l = func(ctx context.Context, name string) error {
			if err := inner(ctx, name); err != nil {
				return err
			}
			return outer(ctx, name)
		}
	}
	return context.WithValue(ctx, key{}, l)
}

// Done says that the work of ctx has come to the point called name, one of All.
// It returns nil unless a listener wants the work to fail here.
func Done(ctx context.Context, name string) error {
	if l, ok := ctx.Value(key{}).(Listener); ok {
		return l(ctx, name)
	}
	return nil
}

// Find returns the step with a name.
func Find(name string) (Step, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return Step{}, false
	}
	return all[i], true
}
