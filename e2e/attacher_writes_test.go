package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/csiemu/csiemu/e2e/control"
)

// recorder stands between a program and the API server, and knows which writes were
// made to which object, those that were refused too.
type recorder struct {
	*httptest.Server
	mu     sync.Mutex
	writes map[string][]string // by the object's name
	// used are the rights that were needed, as in "patch volumeattachments/status".
	used map[string]bool
}

// record starts one that ends with the test, and acts as a user; "" is the
// administrator. A program does not send a token to what has no certificate.
func record(t *testing.T, plane *control.Plane, as string) *recorder {
	t.Helper()
	server, err := url.Parse(plane.REST.Host)
	require.NoError(t, err)
	config := rest.CopyConfig(plane.REST)
	config.Impersonate.UserName = as
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	r := &recorder{writes: map[string][]string{}, used: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.see(request)
		r.use(request)
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
		if idle, has := transport.(interface{ CloseIdleConnections() }); has {
			idle.CloseIdleConnections()
		}
	})
	return r
}

// shortResources are the names of what attachers write to.
var shortResources = strings.NewReplacer("persistentvolumes", "PV", "volumeattachments", "VA")

func (r *recorder) see(request *http.Request) {
	if request.Method == http.MethodGet || strings.Contains(request.URL.Path, "/leases") {
		return
	}
	parts := append(strings.Split(strings.Trim(request.URL.Path, "/"), "/"), "", "")
	for i, part := range parts {
		if part == "persistentvolumes" || part == "volumeattachments" {
			text := strings.TrimRight(shortResources.Replace(part)+"/"+parts[i+2], "/")
			r.mu.Lock()
			r.writes[parts[i+1]] = append(r.writes[parts[i+1]], text)
			r.mu.Unlock()
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes[""] = append(r.writes[""], request.Method+" "+request.URL.Path)
}

// use remembers which right a request needs.
func (r *recorder) use(request *http.Request) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if parts = parts[2:]; len(parts) > 0 && request.URL.Path[:6] == "/apis/" {
		parts = parts[1:] // the group
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return
	}
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[request.Method]
	switch {
	case request.URL.Query().Get("watch") != "":
		verb = "watch"
	case verb == "get" && len(parts) == 1:
		verb = "list"
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[verb+" "+resource] = true
}

// of are the writes to the objects of a name, in their order.
func (r *recorder) of(name string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.writes[name]...)
}
