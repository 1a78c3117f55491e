package registrar

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// watches are caches that run together. What is in the way of one is logged; they go
// on by themselves.
type watches struct {
	c    Config
	link *kube.Link
	all  []cache.SharedIndexInformer
	errs []error
}

func newWatches(c Config) *watches {
	return &watches{c: c, link: &kube.Link{Log: c.Log, Rights: "testdata/rbac/registrar.yaml"}}
}

// watch adds a cache of a resource, or of those of its objects that a field selector
// names. changed is called after one came, went or changed; differs says of a change
// whether it matters, nil that every one does.
func watch[List runtime.Object](w *watches, from kube.Resource[List], example runtime.Object, selector string, differs func(before, after any) bool, changed func()) cache.Store {
	informer, err := kube.NewInformer(kube.InformerConfig[List]{
		Client: w.c.Client, Resource: from, Example: example, FieldSelector: selector, Link: w.link,
	})
	if err != nil {
		w.errs = append(w.errs, err)
		return nil
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
	w.errs, w.all = append(w.errs, err), append(w.all, informer)
	return informer.GetStore()
}

// start starts the caches. stop ends them and waits for their end.
func (w *watches) start(ctx context.Context) (stop func(), err error) {
	if err := errors.Join(w.errs...); err != nil {
		return nil, fmt.Errorf("watch the API server: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, informer := range w.all {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	return func() { cancel(); running.Wait() }, nil
}
