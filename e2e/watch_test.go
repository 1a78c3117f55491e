package e2e_test

import (
	"context"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher begins a watch of objects of one kind.
type watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)

// until waits until an object is as it should be, and returns it.
func until[T runtime.Object](s *stage, begin watcher, name string, reached func(T) bool) T {
	s.Helper()
	w := s.watch(begin, name)
	defer w.Stop()
	for {
		if object := next(s, w, name).Object.(T); reached(object) {
			return object
		}
	}
}

// untilGone begins to watch an object that is there; what it returns waits until it
// is deleted.
func untilGone[T runtime.Object](s *stage, begin watcher, name string) (wait func()) {
	s.Helper()
	w := s.watch(begin, name)
	next(s, w, name) // the object as it is
	return func() {
		s.Helper()
		defer w.Stop()
		for next(s, w, name).Type != watch.Deleted {
		}
	}
}

// watch watches one object. Without a version it begins with what there is.
func (s *stage) watch(begin watcher, name string) watch.Interface {
	s.Helper()
	w, err := begin(s.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(s, err)
	return w
}

// next is the next change of what is watched.
func next(s *stage, w watch.Interface, name string) watch.Event {
	s.Helper()
	select {
	case change, open := <-w.ResultChan():
		require.True(s, open, "the watch of %s has ended", name)
		require.NotEqual(s, watch.Error, change.Type, "the watch of %s: %v", name, change.Object)
		return change
	case <-s.ctx.Done():
		require.NoError(s, s.ctx.Err(), "wait for a change of %s", name)
		return watch.Event{}
	}
}
