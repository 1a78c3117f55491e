package kube_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/csiemu/csiemu/internal/role/kube"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

// volumes are those of a server that can be out of reach.
type volumes struct {
	kube.Resource[*corev1.PersistentVolumeList]
	reached atomic.Bool
	err     error
}

func (v *volumes) List(ctx context.Context, o metav1.ListOptions) (*corev1.PersistentVolumeList, error) {
	if !v.reached.Load() {
		return nil, v.err
	}
	return v.Resource.List(ctx, o)
}

func (v *volumes) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !v.reached.Load() {
		return nil, v.err
	}
	return v.Resource.Watch(ctx, o)
}

// watched is a cache of volumes behind a link.
type watched struct {
	from  *volumes
	link  *kube.Link
	log   bytes.Buffer
	cache cache.SharedIndexInformer
	// end has the cache end, ended is closed when it has.
	end   func()
	ended chan struct{}
}

func watching(t *testing.T, err error) *watched {
	t.Helper()
	client := kubetest.New(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "a"}}).Client()
	w := &watched{from: &volumes{Resource: client.CoreV1().PersistentVolumes(), err: err}, ended: make(chan struct{})}
	w.link = &kube.Link{Log: slog.New(slog.NewTextHandler(&w.log, nil)), Rights: "the-role.yaml"}
	w.cache, err = kube.NewInformer(kube.InformerConfig[*corev1.PersistentVolumeList]{
		Client: client, Resource: w.from, Example: &corev1.PersistentVolume{}, Keep: func(o runtime.Object) any { return o }, Link: w.link,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w.end = func() { cancel(); <-w.ended }
	go func() { w.cache.RunWithContext(ctx); close(w.ended) }()
	return w
}

var errRefused = &url.Error{Op: "Get", URL: "https://api/volumes", Err: errors.New("connection refused")}

func TestAnAPIServerThatIsAwayIsToldOfAndComesBackWithinSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, errRefused)
		<-time.After(65 * time.Second)
		synctest.Wait()
		require.EqualError(t, w.link.Down(), "connection refused")
		require.Equal(t, 3, strings.Count(w.log.String(), "cannot be watched"), "at once, and after 30 and 60 s: %s", &w.log)

		w.from.reached.Store(true)
		<-time.After(3 * time.Second)
		synctest.Wait()
		require.NoError(t, w.link.Down())
		require.Len(t, w.cache.GetStore().List(), 1)
		require.Contains(t, w.log.String(), "can be watched again")
		w.end()
	})
}

func TestACacheThatWaitsEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, errRefused)
		<-time.After(20*time.Second + time.Millisecond)
		began := time.Now()
		w.end()
		require.Zero(t, time.Since(began))
	})
}

func TestMissingRightsAreToldWithAdvice(t *testing.T) {
	t.Parallel()
	for advice, err := range map[string]error{
		"the-role.yaml":           apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "", errors.New("no")),
		"token of the kubeconfig": apierrors.NewUnauthorized("who are you"),
	} {
		t.Run(advice, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := watching(t, err)
				<-time.After(time.Second)
				synctest.Wait()
				require.ErrorIs(t, w.link.Down(), err)
				require.Equal(t, 1, strings.Count(w.log.String(), advice), &w.log)
				w.end()
			})
		})
	}
}

// What only a reflector can judge reaches it, and is told all the same.
func TestOtherAnswersAreTheReflectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, apierrors.NewBadRequest("no such option"))
		<-time.After(time.Second)
		synctest.Wait()
		require.ErrorContains(t, w.link.Down(), "no such option")
		w.from.reached.Store(true)
		<-time.After(time.Minute)
		require.Len(t, w.cache.GetStore().List(), 1)
		w.end()
	})
}
