// Package admin is the admin endpoint: the journal, the faults and the state of an
// emulator over HTTP, for people, scripts and Prometheus.
//
// It is an endpoint for one machine. It listens on loopback or on a Unix socket
// only, and a web page of another site can neither read it nor change anything
// through a visitor's browser; see Server.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/lifecycle"
)

// Emulator is what the endpoint needs of *emulator.Emulator.
type Emulator interface {
	Journal() *journal.Journal
	Findings() []lifecycle.Finding

	Faults() []fault.Status
	Inject(ctx context.Context, r fault.Rule) (id string, err error)
	RemoveFault(ctx context.Context, id string) error
	ClearFaults(ctx context.Context) error

	Volumes(ctx context.Context) ([]emulator.Volume, error)
	Snapshots() []emulator.Snapshot
	Attachments() []emulator.Attachment
	Mounts() []emulator.Mount
	Nodes() []emulator.NodeView
	SetVolumeHealth(ctx context.Context, volumeID string, conditions ...backends.Condition) error
	SetNodeVolumeHealth(nodeName, volumeID string, conditions ...backends.Condition) error
}

// Options describe an endpoint. Emulator is needed, the rest may be zero.
type Options struct {
	Emulator Emulator
	// Driver is the name of the CSI driver, for the page and as the label
	// driver_name of metrics.
	Driver string
	// Pools are the sizes in bytes of the capacity pools, for metrics.
	Pools map[string]int64
	// Ready says why the driver cannot be called, besides what the endpoint sees
	// by itself; nil for no more reasons.
	Ready func(context.Context) error
	// Log receives changes that somebody asked for; nil is silent.
	Log *slog.Logger
}

// Server is the endpoint. It is safe for concurrent use.
//
// Requests must name a loopback host (against DNS rebinding), unless they come
// over a Unix socket. POST, PUT and DELETE need the header X-Csiemu-Admin: 1, which
// no page of another site can send; the forms of the page carry a token of this
// Server instead. Secrets are never shown.
type Server struct {
	o       Options
	log     *slog.Logger
	mux     *http.ServeMux
	metrics *metrics
	pages   *pages
	// token is what forms carry.
	token string
}

// New makes an endpoint. It has no goroutine until Serve.
func New(o Options) *Server {
	s := &Server{o: o, log: o.Log, mux: http.NewServeMux(), token: newToken()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.metrics = newMetrics(o)
	s.pages = newPages()
	s.routes()
	return s
}

// endLimit is how long answers that are under way may take when Serve ends.
const endLimit = 2 * time.Second

// Serve answers on l, which it takes over, until ctx ends; it returns nil then.
// While it runs it counts the calls for the metrics about operations, so it is
// called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// Streams end with the requests' contexts.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	all.Go(func() { s.metrics.follow(ctx, s.o.Emulator.Journal()) })
	all.Go(func() {
		<-ctx.Done()
		limit, over := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer over()
		if server.Shutdown(limit) != nil {
			_ = server.Close()
		}
	})
	s.log.InfoContext(ctx, "serving the admin endpoint", "address", Address(l))
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the admin endpoint: %w", err)
	}
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if err := checkHost(r); err != nil {
		s.fail(w, r, err)
		return
	}
	if err := s.checkChange(w, r); err != nil {
		s.fail(w, r, err)
		return
	}
	s.mux.ServeHTTP(w, r)
}
