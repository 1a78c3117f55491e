package admin

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"slices"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/journal"
)

//go:embed page
var pageFiles embed.FS

// pages are the templates and what they refer to.
type pages struct {
	templates *template.Template
	static    http.Handler
}

func newPages() *pages {
	static, err := fs.Sub(pageFiles, "page/static")
	if err != nil {
		panic(err) // the name is a constant
	}
	files := http.FileServerFS(static)
	return &pages{
		templates: template.Must(template.New("").Funcs(functions).ParseFS(pageFiles, "page/*.html")),
		static:    http.StripPrefix("/static/", files),
	}
}

// What the page shows at most; the API and the command line have all of it.
const (
	mostVolumes = 200
	mostCalls   = 200
	// mostFolded are the calls that are folded to at most mostCalls.
	mostFolded = 5 * mostCalls
)

// view is what the templates show.
type view struct {
	Driver, Version string
	// Volume is set on the page of a volume that exists, ID also of one that did.
	ID     string
	Volume *emulator.Volume
	// Events is where the changes of the page come from.
	Events string
	Token  string

	Volumes     []emulator.Volume
	MoreVolumes int
	Nodes       []emulator.NodeView
	Snapshots   int
	Matrix      matrix
	Faults      []fault.Status
	Calls       []try
	Dropped     uint64
	Findings    int
	Timeline    timeline
	Test        string

	// Rule and Problem are those of a fault that could not be added.
	Rule, Problem string
}

// sections are the parts of each page that change by themselves.
var (
	homeSections   = []string{"summary", "volumes", "attachments", "faults", "calls"}
	volumeSections = []string{"volume", "timeline"}
)

// home looks at everything that the first page shows.
func (s *Server) home(ctx context.Context) (*view, error) {
	v := &view{Driver: s.o.Driver, Version: emulator.Version(), Token: s.token, Events: "/events"}
	volumes, err := s.shownVolumes(ctx)
	if err != nil {
		return nil, err
	}
	v.MoreVolumes = max(0, len(volumes)-mostVolumes)
	v.Volumes = volumes[v.MoreVolumes:] // the newest
	snapshots := s.o.Emulator.Snapshots()
	attachments := s.o.Emulator.Attachments()
	v.Snapshots, v.Nodes = len(snapshots), s.o.Emulator.Nodes()
	v.Matrix = newMatrix(v.Volumes, v.Nodes, attachments, s.o.Emulator.Mounts())
	v.Faults, v.Findings = s.o.Emulator.Faults(), len(s.o.Emulator.Findings())

	j := s.o.Emulator.Journal()
	v.Dropped = j.Dropped()
	entries := j.Entries(0)
	v.Calls = tries(entries[max(0, len(entries)-mostFolded):])
	v.Calls = v.Calls[max(0, len(v.Calls)-mostCalls):]
	v.Test = asTest(v.Calls)
	slices.Reverse(v.Calls)
	return v, nil
}

// ofVolume looks at one volume: at its life, where it was deleted.
func (s *Server) ofVolume(ctx context.Context, id string) (*view, error) {
	v := &view{Driver: s.o.Driver, Version: emulator.Version(), Token: s.token, ID: id, Events: "/events?volume=" + template.URLQueryEscaper(id)}
	entries := s.o.Emulator.Journal().Entries(0)
	found, err := s.find(ctx, id)
	switch {
	case err == nil:
		v.Volume, v.ID = &found, found.ID
	case !slices.ContainsFunc(entries, func(e *journal.Entry) bool { return e.Volume == id }):
		return nil, err
	}
	var nodes []string
	for _, n := range s.o.Emulator.Nodes() {
		nodes = append(nodes, n.Name)
	}
	v.Timeline = newTimeline(entries, v.ID, found.Name, nodes)
	var all []try
	for _, step := range v.Timeline.Steps {
		all = append(all, step.try)
	}
	v.Test = asTest(all)
	return v, nil
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	v, err := s.home(r.Context())
	if err != nil {
		return err
	}
	return s.render(w, http.StatusOK, "home.html", v)
}

func (s *Server) volumePage(w http.ResponseWriter, r *http.Request) error {
	v, err := s.ofVolume(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.render(w, http.StatusOK, "life.html", v)
}

func (s *Server) render(w http.ResponseWriter, status int, name string, v *view) error {
	html, err := s.html(name, v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, err = w.Write(html)
	return err
}

func (s *Server) html(name string, v *view) ([]byte, error) {
	var b bytes.Buffer
	if err := s.pages.templates.ExecuteTemplate(&b, name, v); err != nil {
		return nil, fmt.Errorf("write the page: %w", err)
	}
	return b.Bytes(), nil
}
