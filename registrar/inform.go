package registrar

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/client-go/tools/cache"
)

// notify calls changed after an object came, went or changed. differs says of a
// change whether it matters; nil means that every one does. Errors of the watch are
// logged; it goes on by itself.
func notify(informer cache.SharedIndexInformer, log *slog.Logger, differs func(before, after any) bool, changed func()) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Warn("cannot watch the API server", "error", err)
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			if differs == nil || differs(before, after) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("watch the API server: %w", err)
	}
	return nil
}
