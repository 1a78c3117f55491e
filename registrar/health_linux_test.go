package registrar_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/registrar"
)

// told is what an endpoint answers.
type told struct {
	OK     bool
	Checks []struct {
		Name, Reason string
		OK           bool
	}
	Detail registrar.State
}

// reason is that of a check, "" if it is well.
func (a told) reason(t *testing.T, check string) string {
	t.Helper()
	for _, c := range a.Checks {
		if c.Name == check {
			require.Equal(t, c.OK, c.Reason == "")
			return c.Reason
		}
	}
	require.Failf(t, "no such check", "%s in %+v", check, a)
	return ""
}

// asker asks a registrar's HTTP endpoint, which is a socket.
func asker(t *testing.T, socket string) (ask func(path string) (int, told), text func(path string) (int, string)) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	text = func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registrar"+path, http.NoBody)
		require.NoError(t, err)
		reply, err := client.Do(request)
		require.NoError(t, err)
		defer func() { require.NoError(t, reply.Body.Close()) }()
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		return reply.StatusCode, string(body)
	}
	ask = func(path string) (int, told) {
		t.Helper()
		code, body := text(path + "?format=json")
		var a told
		require.NoError(t, json.Unmarshal([]byte(body), &a), body)
		require.Equal(t, code == http.StatusOK, a.OK)
		return code, a
	}
	return ask, text
}

// What node-driver-registrar's /healthz cannot tell: it is well while the driver is
// away or the kubelet has refused it.
func TestTheEndpointTellsTheTruth(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	c := p.config()
	c.HTTPEndpoint = "unix://" + filepath.Join(filepath.Dir(p.driver), "h.sock")
	r := start(t, c)
	ask, text := asker(t, strings.TrimPrefix(c.HTTPEndpoint, "unix://"))

	r.problem(t, "wait for the driver")
	code, ready := ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, ready.reason(t, "driver"), "no such file or directory")
	require.NotEmpty(t, ready.reason(t, "registered"))
	code, _ = ask("/healthz")
	require.Equal(t, http.StatusOK, code, "to start it again would not help")

	double := csitest.New(t)
	stop := serveDriver(t, p.driver, double)
	s := r.want(t, "offered", func(s registrar.State) bool { return s.Offers == 1 && s.NodeID != "" })
	_, ready = ask("/readyz")
	require.Empty(t, ready.reason(t, "driver"))
	require.Equal(t, "no kubelet has asked at "+s.Socket+" yet", ready.reason(t, "registered"))
	require.Equal(t, "node-1", ready.Detail.NodeID)

	// The kubelet asks, refuses, and takes the driver at the next offer.
	conn, err := connect(s.Socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	kubelet := registerapi.NewRegistrationClient(conn)
	info, err := kubelet.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	require.Equal(t, driverName, info.GetName())
	r.want(t, "asked", func(s registrar.State) bool { return !s.LastGetInfo.IsZero() })
	_, ready = ask("/readyz")
	require.Contains(t, ready.reason(t, "registered"), "has asked and not said yet")
	_, err = kubelet.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "not today"})
	require.NoError(t, err)
	r.problem(t, "not today")
	code, ready = ask("/readyz/registered")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, ready.reason(t, "registered"), "refused driver "+driverName+": not today")
	require.Contains(t, ready.Detail.LastError, "not today")
	require.False(t, ready.Detail.LastErrorAt.IsZero())
	k, _ := startKubelet(t, p.registry, nil)
	k.want(t, "registered")
	r.want(t, "registered", registered)
	code, body := text("/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	_, ready = ask("/readyz")
	require.True(t, ready.Detail.Registered)
	require.Contains(t, ready.Detail.LastError, "not today", "the last error is still known")
	_, body = text("/metrics")
	require.Contains(t, body, "csiemu_registrar_registered 1")
	require.Contains(t, body, "csiemu_registrar_driver_reachable 1")
	require.Contains(t, body, `csi_sidecar_operations_seconds_count{driver_name="memory.csiemu.dev",grpc_status_code="OK",method_name="/csi.v1.Node/NodeGetInfo",migrated=""}`)

	stop()
	r.problem(t, "lost the connection")
	code, ready = ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, ready.reason(t, "driver"), "lost the connection to the driver")
	require.Empty(t, ready.reason(t, "registered"), "it still is, so that volumes can be unmounted")
	code, _ = ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	serveDriver(t, p.driver, double)
	r.want(t, "back", func(s registrar.State) bool { return s.DriverReachable })

	require.NoError(t, os.RemoveAll(p.registry))
	r.want(t, "gone", func(s registrar.State) bool { return s.Socket == "" })
	code, healthy := ask("/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, healthy.reason(t, "socket"), "the registration socket is not in place")
	_, body = text("/metrics")
	require.Contains(t, body, "csiemu_registrar_registered 0")
	require.NoError(t, r.end())
}

func TestTheEndpointOfDirectModeTellsTheTruth(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "h.sock")
	client := fake.NewClientset()
	r := start(t, registrar.Config{
		Conn: csitest.New(t).Conn(), Client: client, HTTPEndpoint: "unix://" + socket,
		Direct: &registrar.Direct{NodeName: "n1"}, CSIDriver: &registrar.CSIDriver{},
	})
	ask, _ := asker(t, socket)
	r.want(t, "no Node", func(s registrar.State) bool {
		return strings.Contains(s.Problem, "there is no Node n1") && s.CSIDriverObject == registrar.CSIDriverKept
	})
	code, ready := ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, ready.reason(t, "registered"), "there is no Node n1, waiting for it")
	require.Empty(t, ready.reason(t, "driver"))
	require.Empty(t, ready.reason(t, "csidriver"))
	code, _ = ask("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, client.Tracker().Add(node("u1", nil)))
	r.want(t, "registered", registered)
	code, ready = ask("/readyz")
	require.Equal(t, http.StatusOK, code)
	require.False(t, ready.Detail.LastNotify.IsZero())
	require.NoError(t, r.end())
}

// An endpoint that cannot be had is no reason to wait.
func TestAnEndpointThatCannotBeOpenedIsAnError(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	c := p.config()
	c.HTTPEndpoint = "unix://" + filepath.Join(p.registry, "missing", "h.sock")
	err := registrar.Run(t.Context(), c)
	require.ErrorContains(t, err, "run the registrar: serve HTTP on "+c.HTTPEndpoint)
}
