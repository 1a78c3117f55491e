package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csiemu/csiemu/internal/role/pause"
)

// How long a cache waits until it asks an API server again that is away, which
// doubles, and how often a reason is told that stays the same.
const (
	firstAgain = 100 * time.Millisecond
	lastAgain  = 3 * time.Second
	tellEvery  = 30 * time.Second
)

// Link is how the API server can be reached, as caches notice. It is shared by the
// caches of a role. The zero value is ready for use; its methods are safe for
// concurrent use.
type Link struct {
	// Log gets what is in the way, at once and then every 30 s; nil is silent.
	Log *slog.Logger
	// Rights is where to read which rights the role needs.
	Rights string

	mu   sync.Mutex
	down map[string]error     // by what is listed and watched
	told map[string]time.Time // when each reason was told last
}

// Down is why caches may be out of date; nil if nothing is known to be in the way.
func (l *Link) Down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(l.down)) {
		return l.down[what]
	}
	return nil
}

func (l *Link) fails(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down == nil {
		l.down, l.told = map[string]error{}, map[string]time.Time{}
	}
	if of, is := errors.AsType[*url.Error](err); is {
		err = of.Err // the same for all that is asked
	}
	l.down[what] = err
	if at, told := l.told[err.Error()]; l.Log == nil || told && time.Since(at) < tellEvery {
		return
	}
	l.told[err.Error()] = time.Now()
	attrs := []any{"reason", err}
	switch {
	case apierrors.IsForbidden(err):
		attrs = append(attrs, "advice", "grant the rights of "+l.Rights)
	case apierrors.IsUnauthorized(err):
		attrs = append(attrs, "advice", "look at the token of the kubeconfig, or of the service account")
	}
	l.Log.Warn("the API server cannot be watched", attrs...)
}

func (l *Link) works(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down[what] == nil {
		return
	}
	delete(l.down, what)
	if len(l.down) > 0 {
		return
	}
	clear(l.told)
	if l.Log != nil {
		l.Log.Info("the API server can be watched again")
	}
}

// patiently makes a request of a cache again for as long as the API server is away or
// does not let us. A reflector would wait for up to a minute, heedless of the end of
// ctx, and tell it in words of its own. Any other answer is the reflector's to judge.
func patiently[T any](ctx context.Context, l *Link, what string, request func(context.Context) (T, error)) (T, error) {
	again := pause.Doubling{First: firstAgain, Most: lastAgain}
	for {
		found, err := request(ctx)
		if err == nil {
			l.works(what)
			return found, nil
		}
		if ctx.Err() == nil && !mayPass(err) {
			return found, err
		}
		if ctx.Err() == nil {
			l.fails(what, err)
		}
		if err := again.Wait(ctx); err != nil {
			return found, err // the end of ctx: after another error a reflector sleeps
		}
	}
}

// mayPass says of an error that the same request may succeed later: nobody answered,
// or who did may change his mind.
func mayPass(err error) bool {
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) {
		return true
	}
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}
