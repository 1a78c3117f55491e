// Package endpoint is the HTTP endpoint of a role: whether it is healthy and ready
// and why not, its metrics and, where wanted, its profiles.
package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// drainLimit is how long requests under way may take when the endpoint ends.
const drainLimit = time.Second

// Config says what an endpoint serves.
type Config struct {
	// Address is HOST:PORT, tcp://HOST:PORT or unix://PATH. Port 0 takes a free
	// one (Server.Addr).
	Address string
	// Healthy are the checks of /healthz: a failure means that a restart of the
	// process could help. Ready are those of /readyz: a failure means that the
	// role does not do its work now. Without any the answer is "ok".
	Healthy, Ready []Check
	// Detail is shown with ?verbose and in JSON: what the role knows of itself.
	// It must be fit for encoding/json. nil shows nothing.
	Detail func() any
	// Metrics is what MetricsPath shows; nil shows none.
	Metrics prometheus.Gatherer
	// MetricsPath is where; "" means /metrics.
	MetricsPath string
	// PProf serves /debug/pprof/.
	PProf bool
	// Log gets what goes wrong in serving; nil logs nothing.
	Log *slog.Logger
}

// NewRegistry returns a registry with the metrics of the process and of Go's
// runtime.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// handler is what an endpoint answers.
func handler(c Config) http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string][]Check{"/healthz": c.Healthy, "/readyz": c.Ready} {
		answer := checked{checks: checks, detail: c.Detail}
		mux.Handle(path, answer)
		mux.Handle(path+"/{check}", answer)
	}
	if c.Metrics != nil {
		mux.Handle(cmp.Or(c.MetricsPath, "/metrics"), promhttp.HandlerFor(c.Metrics, promhttp.HandlerOpts{}))
	}
	if c.PProf {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Server is an endpoint that listens. It answers once it is served.
type Server struct {
	listener net.Listener
	config   Config
}

// Listen opens an endpoint. Serve or Close ends it. The socket of a process that is
// gone is replaced.
func Listen(ctx context.Context, c Config) (*Server, error) {
	network, where := "tcp", strings.TrimPrefix(c.Address, "tcp://")
	if path, is := strings.CutPrefix(c.Address, "unix://"); is {
		network, where = "unix", path
		if err := removeStale(ctx, path); err != nil {
			return nil, fmt.Errorf("serve HTTP on %s: %w", c.Address, err)
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, where)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP on %s: %w", c.Address, err)
	}
	return &Server{listener: l, config: c}, nil
}

// Addr is where the endpoint listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends an endpoint that was not served.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers until ctx ends, and returns nil then; nothing runs any more.
// Requests under way get a second to end.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           handler(s.config),
		ReadHeaderTimeout: 5 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	if s.config.Log != nil {
		server.ErrorLog = slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP on %s: %w", s.config.Address, err)
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	if err != nil {
		return fmt.Errorf("end HTTP on %s: %w", s.config.Address, err)
	}
	return nil
}
