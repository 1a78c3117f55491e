package admin_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// A name that resolves to this machine is not this machine.
func TestOtherHostsAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t)
	for name, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1": 200, "127.0.0.1:80": 200, "[::1]": 200, "[::1]:9810": 200,
		"evil.example": 421, "evil.example:9810": 421, "localhost.evil.example": 421, "10.0.0.1:9810": 421, "0.0.0.0": 421, "127.0.0.1.evil.example": 421,
	} {
		for _, path := range []string{"/", "/v1/volumes", "/metrics", "/healthz"} {
			status, text := d.do(http.MethodGet, path, "", host(name))
			require.Equal(t, want, status, "%s of %s: %s", path, name, text)
		}
	}
}

func TestChangesMustBeMeant(t *testing.T) {
	t.Parallel()
	d := start(t)
	rule := `{"rule":"CreateVolume: drop"}`
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodPost, "/v1/faults", rule)))
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodPost, "/v1/faults", rule, header(admin.Header, "0"))))
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodDelete, "/v1/faults", "")))
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodPut, "/v1/volumes/x/health", "[]")))
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodPost, "/v1/faults", rule, meant, header("Sec-Fetch-Site", "cross-site"))))
	require.Equal(t, http.StatusForbidden, status(d.do(http.MethodPost, "/v1/faults", rule, meant, header("Origin", "http://evil.example"))))
	require.Empty(t, d.emulator.Faults())
	require.Equal(t, http.StatusCreated, status(d.do(http.MethodPost, "/v1/faults", rule, meant)))
}

func status(code int, _ string) int { return code }

var tokenForm = regexp.MustCompile(`name="token" value="([^"]+)"`)

// form posts a form as a browser does.
func (d *driver) form(values string, edit ...func(*http.Request)) (int, string) {
	d.t.Helper()
	edit = append([]func(*http.Request){header("Content-Type", "application/x-www-form-urlencoded"), header("Origin", d.url)}, edit...)
	return d.do(http.MethodPost, "/faults", values, edit...)
}

func (d *driver) token() string {
	d.t.Helper()
	_, page := d.do(http.MethodGet, "/", "")
	found := tokenForm.FindStringSubmatch(page)
	require.Len(d.t, found, 2)
	return found[1]
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	d := start(t)
	token := d.token()
	add := "do=add&rule=CreateVolume%3A+drop"
	require.Equal(t, http.StatusForbidden, status(d.form(add)))
	require.Equal(t, http.StatusForbidden, status(d.form(add+"&token=guessed")))
	require.Equal(t, http.StatusForbidden, status(d.form(add+"&token="+token, header("Origin", "http://evil.example"))))
	require.Equal(t, http.StatusForbidden, status(d.form(add+"&token="+token, header("Sec-Fetch-Site", "same-site"))))
	require.Equal(t, http.StatusForbidden, status(d.form(add+"&token="+start(t).token())), "the token is that of one process")
	require.Empty(t, d.emulator.Faults())
	require.Equal(t, http.StatusSeeOther, status(d.form(add+"&token="+token, header("Sec-Fetch-Site", "same-origin"))))
	require.Len(t, d.emulator.Faults(), 1)
}

func TestBrowsersAreToldToTrustNobody(t *testing.T) {
	t.Parallel()
	d := start(t)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	admin.New(admin.Options{Emulator: d.emulator}).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
	require.NotContains(t, w.Body.String(), "style=")
	require.NotContains(t, w.Body.String(), "<script>")
}

func TestWhatIsWrittenIsEscaped(t *testing.T) {
	t.Parallel()
	d := start(t)
	id := d.create("a")
	_, err := d.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: "<script>alert(1)</script>"})
	require.Error(t, err)
	for _, path := range []string{"/", "/volumes/" + id, "/volumes/%3Cscript%3Ealert(1)%3C%2Fscript%3E"} {
		code, page := d.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, code, path)
		require.NotContains(t, page, "<script>alert", path)
	}
}

// No secret is shown, wherever callers put it.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse-battery"
	d := start(t)
	id := d.create("a", func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"key": secret} })
	_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "b", VolumeCapabilities: []*csi.VolumeCapability{capability()}, Parameters: map[string]string{"password": secret},
	})
	require.Error(t, err)
	_, err = d.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: id, TargetPath: "/nowhere/target", VolumeCapability: capability(),
		VolumeContext: map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": `{"":{"token":"` + secret + `"}}`},
	})
	require.Error(t, err)
	for _, path := range []string{"/", "/volumes/" + id, "/v1/calls", "/v1/calls/1", "/v1/volumes", "/v1/volumes/" + id, "/v1/findings", "/metrics"} {
		code, text := d.do(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, code, path)
		require.NotContains(t, text, secret, path)
	}
}

// stored is an emulator whose volumes were made with parameters as older versions
// may have kept them.
type stored struct{ *emulator.Emulator }

func (s stored) Volumes(ctx context.Context) ([]emulator.Volume, error) {
	all, err := s.Emulator.Volumes(ctx)
	for i := range all {
		all[i].Parameters = map[string]string{"password": "hunter2", "pool": "default"}
		all[i].Mutable = map[string]string{"apiToken": "hunter2"}
	}
	return all, err
}

func TestSensitiveParametersAreStripped(t *testing.T) {
	t.Parallel()
	d := start(t)
	id := d.create("a")
	s := admin.New(admin.Options{Emulator: stored{d.emulator}})
	for _, path := range []string{"/v1/volumes", "/v1/volumes/" + id, "/volumes/" + id} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		require.NotContains(t, w.Body.String(), "hunter2", path)
		require.Contains(t, w.Body.String(), "***stripped***", path)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"127.0.0.1:9810": "tcp://127.0.0.1:9810", "localhost:1": "tcp://localhost:1", "[::1]:9810": "tcp://[::1]:9810", "127.1.2.3:1": "tcp://127.1.2.3:1",
		"http://127.0.0.1:9810/": "tcp://127.0.0.1:9810", "unix:///run/admin.sock": "unix:///run/admin.sock", "/run/admin": "unix:///run/admin",
	} {
		e, err := admin.ParseAddress(text)
		require.NoError(t, err, text)
		require.Equal(t, want, e.String())
	}
	for _, text := range []string{
		"", "9810", ":9810", "0.0.0.0:9810", "[::]:9810", "10.0.0.1:9810", "example.com:9810", "localhost", "127.0.0.1:", "unix:", "unix://", "https://127.0.0.1:1",
	} {
		_, err := admin.ParseAddress(text)
		require.ErrorIs(t, err, backends.ErrInvalid, text)
		_, err = admin.Listen(t.Context(), text)
		require.ErrorIs(t, err, backends.ErrInvalid, text)
		_, err = admin.NewClient(text)
		require.ErrorIs(t, err, backends.ErrInvalid, text)
	}
	_, err := admin.ParseAddress("0.0.0.0:9810")
	require.ErrorContains(t, err, `"0.0.0.0" is not this machine alone; give a port of 127.0.0.1, or unix:///path`)
}

// FuzzParseAddress never accepts what others could reach.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"127.0.0.1:9810", "unix:///run/a.sock", "[::1]:1", "0.0.0.0:1", "http://localhost:1/", ":1", "unix:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := admin.ParseAddress(text)
		if err != nil {
			require.ErrorIs(t, err, backends.ErrInvalid)
			return
		}
		if e.Network == "tcp" {
			host := strings.ToLower(e.Address[:strings.LastIndexByte(e.Address, ':')])
			require.Regexp(t, `^(localhost|127\.\d+\.\d+\.\d+|\[?::(1|ffff:.*)\]?|\[?[0:]+1\]?|\[?[0:]+ffff:.*\]?)(%.*)?$`, host)
		}
		again, err := admin.ParseAddress(text)
		require.NoError(t, err)
		require.Equal(t, e, again)
	})
}

func TestUnixSocketIsForItsOwner(t *testing.T) {
	t.Parallel()
	d := start(t)
	dir, err := os.MkdirTemp("", "d") //nolint:usetesting // t.TempDir has the test's name in it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	path := filepath.Join(dir, "admin")
	l, err := admin.Listen(t.Context(), "unix://"+path)
	require.NoError(t, err)
	require.Equal(t, "unix://"+path, admin.Address(l))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- admin.New(admin.Options{Emulator: d.emulator, Driver: "x"}).Serve(ctx, l) }()
	client, err := admin.NewClient("unix://" + path)
	require.NoError(t, err)
	var v admin.Version
	require.NoError(t, client.Get(t.Context(), "/v1/version", &v))
	require.Equal(t, "x", v.Driver)
	require.Equal(t, emulator.Version(), v.Version)
	client.Close()
	cancel()
	require.NoError(t, <-served)
	require.NoFileExists(t, path)

	err = client.Get(t.Context(), "/v1/version", &v)
	require.ErrorIs(t, err, admin.ErrUnreachable)
	require.ErrorContains(t, err, path)
}
