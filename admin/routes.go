package admin

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/csiemu/csiemu/emulator"
)

func (s *Server) routes() {
	get := func(path string, h handler) { s.handle(path, map[string]handler{http.MethodGet: h}) }
	post := func(path string, h handler) { s.handle(path, map[string]handler{http.MethodPost: h}) }

	get("/v1/calls", s.calls)
	get("/v1/calls/{seq}", s.call)
	s.handle("/v1/faults", map[string]handler{
		http.MethodGet: s.faults, http.MethodPost: s.addFault, http.MethodDelete: s.clearFaults,
	})
	s.handle("/v1/faults/{id}", map[string]handler{http.MethodDelete: s.removeFault})
	get("/v1/faults/points", s.points)
	get("/v1/volumes", s.list(s.allVolumes))
	get("/v1/volumes/{id}", s.volume)
	s.handle("/v1/volumes/{id}/health", map[string]handler{http.MethodPut: s.setHealth})
	get("/v1/snapshots", s.list(s.allSnapshots))
	get("/v1/attachments", s.list(s.allAttachments))
	get("/v1/mounts", s.list(s.allMounts))
	get("/v1/nodes", s.list(s.allNodes))
	get("/v1/findings", s.findings)
	get("/v1/version", s.version)
	s.mux.HandleFunc("/v1/", s.nothing)

	get("/healthz", s.healthz)
	get("/readyz", s.readyz)
	s.mux.Handle("GET /metrics", s.metrics)

	get("/{$}", s.page)
	get("/volumes/{id}", s.volumePage)
	get("/events", s.events)
	post("/faults", s.faultForm)
	s.mux.Handle("GET /static/", s.pages.static)
	s.mux.HandleFunc("/", s.nothing)
}

func (s *Server) nothing(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, &httpError{http.StatusNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path)})
}

// Version is what /v1/version answers.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Driver  string `json:"driver,omitempty"`
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return send(w, http.StatusOK, Version{emulator.Version(), runtime.Version(), s.o.Driver})
}

// healthz says that the process answers.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	return send(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says whether the driver can be called: the array answers, and what
// Options.Ready says.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	_, err := s.o.Emulator.Volumes(r.Context())
	if err == nil && s.o.Ready != nil {
		err = s.o.Ready(r.Context())
	}
	if err != nil {
		return &httpError{http.StatusServiceUnavailable, fmt.Sprintf("the driver cannot be called: %v", err)}
	}
	return send(w, http.StatusOK, map[string]string{"status": "ready"})
}
