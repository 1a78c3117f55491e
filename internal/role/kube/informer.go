package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Resource is the part of a typed client that an informer needs.
type Resource[List runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (List, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// InformerConfig is what NewInformer makes a cache of.
type InformerConfig[List runtime.Object] struct {
	// Client is the clientset of Resource. It tells what the server can do.
	Client any
	// Resource is listed and watched.
	Resource Resource[List]
	// FieldSelector says which objects, as in metadata.name=n1; "" means all.
	FieldSelector string
	// Example is an object of the resource.
	Example runtime.Object
	// Keep turns an object of the resource into what the cache keeps of it: at
	// least a name and a resourceVersion, by meta.Accessor. What it returns is
	// shared and must not be changed. nil keeps everything.
	Keep func(runtime.Object) any
	// Resync is how often handlers are told of everything again; 0 means never.
	Resync time.Duration
	// Indexers may be nil.
	Indexers cache.Indexers
	// Link is told how the API server can be reached; nil tells nobody.
	Link *Link
}

// NewInformer returns a cache of one resource. A cluster has many more objects
// than one role cares for, and of those it needs little: only what Keep returns
// stays in memory.
func NewInformer[List runtime.Object](c InformerConfig[List]) (cache.SharedIndexInformer, error) {
	link, what := c.Link, fmt.Sprintf("%T", c.Example)
	if link == nil {
		link = &Link{}
	}
	from := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = c.FieldSelector
			return patiently(ctx, link, what, func(ctx context.Context) (runtime.Object, error) { return c.Resource.List(ctx, o) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = c.FieldSelector
			return patiently(ctx, link, what, func(ctx context.Context) (watch.Interface, error) { return c.Resource.Watch(ctx, o) })
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(from, c.Client), c.Example,
		cache.SharedIndexInformerOptions{ResyncPeriod: c.Resync, Indexers: c.Indexers})
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		// A watch that is too old, or that the server has ended, begins anew by itself.
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !errors.Is(err, io.EOF) {
			link.fails(what, err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of %T: %w", c.Example, err)
	}
	if c.Keep == nil {
		return informer, nil
	}
	err = informer.SetTransform(func(object any) (any, error) {
		if full, is := object.(runtime.Object); is {
			return c.Keep(full), nil
		}
		return object, nil // kept before
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of %T: %w", c.Example, err)
	}
	return informer, nil
}
