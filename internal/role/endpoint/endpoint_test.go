package endpoint_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/role/endpoint"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func good(name string) endpoint.Check {
	return endpoint.Check{Name: name, Do: func(context.Context) error { return nil }}
}

func bad(name, reason string) endpoint.Check {
	return endpoint.Check{Name: name, Do: func(context.Context) error { return errors.New(reason) }}
}

// serve serves until the test ends and returns a client and the base of its URLs.
func serve(t *testing.T, c endpoint.Config) (*http.Client, string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := endpoint.Listen(ctx, c)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, s.Addr().Network(), s.Addr().String())
	}}
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
		transport.CloseIdleConnections()
	})
	return &http.Client{Transport: transport}, "http://endpoint"
}

func get(t *testing.T, client *http.Client, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	reply, err := client.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, reply.Body.Close()) }()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	return reply.StatusCode, string(text)
}

func TestAnswersOfChecks(t *testing.T) {
	t.Parallel()
	client, base := serve(t, endpoint.Config{
		Address: "127.0.0.1:0",
		Healthy: []endpoint.Check{good("socket")},
		Ready:   []endpoint.Check{good("driver"), bad("registered", "the kubelet refused it")},
		Detail:  func() any { return map[string]int{"offers": 3} },
	})
	for name, test := range map[string]struct {
		path string
		code int
		body string
	}{
		"all is well":                     {"/healthz", 200, "ok\n"},
		"all is well, in detail":          {"/healthz?verbose", 200, "socket: ok\nok\n{\n  \"offers\": 3\n}\n"},
		"one is not well":                 {"/readyz", 503, "registered: the kubelet refused it\n"},
		"one is not well, in detail":      {"/readyz?verbose", 503, "driver: ok\nregistered: the kubelet refused it\n{\n  \"offers\": 3\n}\n"},
		"a check of its own that is well": {"/readyz/driver", 200, "ok\n"},
		"one that is not":                 {"/readyz/registered", 503, "registered: the kubelet refused it\n"},
		"one that is none":                {"/readyz/nothing", 404, "no check is called \"nothing\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, body := get(t, client, base+test.path)
			require.Equal(t, test.code, code)
			require.Equal(t, test.body, body)
		})
	}
}

func TestAnswersInJSON(t *testing.T) {
	t.Parallel()
	client, base := serve(t, endpoint.Config{Address: "127.0.0.1:0", Ready: []endpoint.Check{good("a"), bad("b", "why")}})
	code, body := get(t, client, base+"/readyz?format=json")
	require.Equal(t, 503, code)
	var found map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &found))
	require.Equal(t, map[string]any{"ok": false, "checks": []any{
		map[string]any{"name": "a", "ok": true}, map[string]any{"name": "b", "ok": false, "reason": "why"},
	}}, found)
	code, body = get(t, client, base+"/healthz?format=json")
	require.Equal(t, 200, code, "no checks, nothing wrong")
	require.JSONEq(t, `{"ok":true,"checks":[]}`, body)
}

func TestMetricsOfTheProcessAndTheRole(t *testing.T) {
	t.Parallel()
	registry := endpoint.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a_gauge"}, func() float64 { return 7 }))
	client, base := serve(t, endpoint.Config{Address: "127.0.0.1:0", Metrics: registry, MetricsPath: "/elsewhere"})
	code, body := get(t, client, base+"/elsewhere")
	require.Equal(t, 200, code)
	for _, metric := range []string{"a_gauge 7", "go_goroutines ", "process_start_time_seconds "} {
		require.Contains(t, body, metric)
	}
	code, _ = get(t, client, base+"/metrics")
	require.Equal(t, 404, code)
}

func TestProfilesWhereWanted(t *testing.T) {
	t.Parallel()
	client, base := serve(t, endpoint.Config{Address: "127.0.0.1:0", PProf: true})
	code, body := get(t, client, base+"/debug/pprof/goroutine?debug=1")
	require.Equal(t, 200, code)
	require.Contains(t, body, "goroutine profile")
	client, base = serve(t, endpoint.Config{Address: "127.0.0.1:0"})
	code, _ = get(t, client, base+"/debug/pprof/")
	require.Equal(t, 404, code)
}

func TestARequestUnderWayDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := make(chan struct{})
	s, err := endpoint.Listen(ctx, endpoint.Config{Address: "tcp://127.0.0.1:0", Ready: []endpoint.Check{{Name: "slow", Do: func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}}}})
	require.NoError(t, err)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		<-began
		cancel()
	}()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/readyz", http.NoBody)
	require.NoError(t, err)
	if reply, err := client.Do(request); err == nil {
		require.NoError(t, reply.Body.Close())
	}
	<-asked
	require.NoError(t, <-served)
}

func TestSocketsOfOthers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "e") //nolint:usetesting // t.TempDir has the test's name in it, too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "http.sock")
	address := "unix://" + path

	var config net.ListenConfig
	dead, err := config.Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	s, err := endpoint.Listen(t.Context(), endpoint.Config{Address: address})
	require.NoError(t, err, "the socket of a process that was killed is replaced")
	_, err = endpoint.Listen(t.Context(), endpoint.Config{Address: address})
	require.ErrorContains(t, err, "another process serves on")
	require.NoError(t, s.Close())

	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err = endpoint.Listen(t.Context(), endpoint.Config{Address: address})
	require.Error(t, err)
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept), "a file is not touched")

	client, base := serve(t, endpoint.Config{Address: "unix://" + strings.Replace(path, "http", "other", 1)})
	code, _ := get(t, client, base+"/healthz")
	require.Equal(t, 200, code)
}
