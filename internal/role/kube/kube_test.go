package kube_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/csiemu/csiemu/internal/role/kube"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

func TestPatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch interface{ Bytes() []byte }
		want  string
	}{
		"a value of one object": {
			kube.ForUID("u").Set("/status/a", true),
			`[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/status/a","value":true}]`,
		},
		"a value of any object": {kube.ForUID("").Set("/status", nil), `[{"op":"add","path":"/status","value":null}]`},
		"a finalizer and an annotation of one object": {
			kube.Metadata{UID: "u", Add: []string{"a/b"}, Annotations: map[string]string{"c/d": "e"}},
			`{"metadata":{"uid":"u","finalizers":["a/b"],"annotations":{"c/d":"e"}}}`,
		},
		"a finalizer is removed": {
			kube.Metadata{Remove: []string{"a/b"}},
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, test.want, string(test.patch.Bytes()))
		})
	}
}

func TestLatestHasOwnWritesBeforeTheCache(t *testing.T) {
	t.Parallel()
	cache := map[string]kube.Version{"a": {UID: "1", ResourceVersion: "9"}}
	cached := func(name string) (kube.Version, bool) { v, ok := cache[name]; return v, ok }
	latest := kube.NewLatest(cached, func(v kube.Version) kube.Version { return v })
	get := func() string { v, _ := latest.Get("a"); return v.UID + "/" + v.ResourceVersion }

	latest.Wrote("a", kube.Version{UID: "1", ResourceVersion: "10"}) // more than 9, as a number
	require.Equal(t, "1/10", get())
	latest.Wrote("a", kube.Version{UID: "1", ResourceVersion: "8"})
	require.Equal(t, "1/10", get(), "an answer that comes late")
	cache["a"] = kube.Version{UID: "1", ResourceVersion: "11"}
	require.Equal(t, "1/11", get())
	require.Zero(t, latest.Len())

	latest.Wrote("a", kube.Version{UID: "1", ResourceVersion: "12"})
	cache["a"] = kube.Version{UID: "2", ResourceVersion: "13"}
	require.Equal(t, "2/13", get(), "another object of the name")
	latest.Wrote("a", kube.Version{UID: "2", ResourceVersion: "14"})
	delete(cache, "a")
	latest.Saw("a")
	require.Zero(t, latest.Len(), "what is gone is forgotten")
	latest.Wrote("a", kube.Version{UID: "2", ResourceVersion: "15"})
	require.Zero(t, latest.Len(), "an answer after the end")
	latest.Wrote("unknown", kube.Version{})
	require.Zero(t, latest.Len())
}

func TestConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],
		"clusters":[{"name":"k","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"u"}]}`), 0o600))
	config, err := kube.ClientConfig{Kubeconfig: path}.Config()
	require.NoError(t, err)
	require.EqualValues(t, -1, config.QPS, "no limit of this side")
	require.Equal(t, "application/vnd.kubernetes.protobuf", config.ContentType)
	config, err = kube.ClientConfig{Kubeconfig: path, QPS: 7, Burst: 9, UserAgent: "me"}.Config()
	require.NoError(t, err)
	require.EqualValues(t, 7, config.QPS)
	require.Equal(t, 9, config.Burst)
	require.Equal(t, "me", config.UserAgent)

	_, err = kube.New(kube.ClientConfig{Kubeconfig: path + "x"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func lease(server *kubetest.Server) kube.LeaseConfig {
	return kube.LeaseConfig{
		Leases: server.Client().CoordinationV1(), Namespace: "ns", Name: "lease", Identity: "me",
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second,
		Labels: map[string]string{"a": "b"}, Metrics: prometheus.NewRegistry(),
	}
}

func holder(server *kubetest.Server) string {
	var l coordinationv1.Lease
	if !server.Get("leases", "ns", "lease", &l) || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func TestLeadGivesTheLeaseBackAfterTheWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := kubetest.New()
		ctx, cancel := context.WithCancel(t.Context())
		failed := errors.New("failed")
		err := kube.Lead(ctx, lease(server), func(ctx context.Context) error {
			require.Equal(t, "me", holder(server))
			cancel()
			<-ctx.Done()
			<-time.After(time.Hour) // it takes its time; the lease is renewed
			require.Equal(t, "me", holder(server))
			return failed
		})
		require.ErrorIs(t, err, failed)
		require.NotErrorIs(t, err, kube.ErrLeaseLost)
		require.Empty(t, holder(server))
	})
}

func TestLeadEndsWithTheContextWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := kubetest.New()
		other := lease(server)
		other.Identity = "other"
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, kube.Lead(ctx, other, func(ctx context.Context) error {
			waiting, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return kube.Lead(waiting, lease(server), func(context.Context) error { return errors.New("two lead") })
		}))
	})
}

func TestLeadRefusesTimesThatCannotBe(t *testing.T) {
	t.Parallel()
	c := lease(kubetest.New())
	c.Duration = time.Second
	require.ErrorContains(t, kube.Lead(t.Context(), c, nil), "lead by lease ns/lease")
}

func TestQueueMetricsAreShared(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	one, err := kube.NewQueueMetrics(registry)
	require.NoError(t, err)
	two, err := kube.NewQueueMetrics(registry)
	require.NoError(t, err)
	require.Equal(t, one, two)
	require.NoError(t, registry.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"})))

	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_depth"}, []string{"other"}))
	_, err = kube.NewQueueMetrics(taken)
	require.Error(t, err)
}
