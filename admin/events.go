package admin

import (
	"bytes"
	"fmt"
	"net/http"
)

// events streams the parts of a page as they change, as server-sent events: the
// event is the part's name, the data its HTML.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	volume := r.URL.Query().Get("volume")
	look := func() (*view, error) {
		if volume != "" {
			return s.ofVolume(r.Context(), volume)
		}
		return s.home(r.Context())
	}
	if _, err := look(); err != nil {
		return err
	}
	sections := homeSections
	if volume != "" {
		sections = volumeSections
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	// A page that was loaded from a process before has another one's token.
	if err := sendEvent(w, "token", []byte(s.token)); err != nil {
		return nil //nolint:nilerr // the reader has gone
	}
	sent := map[string][]byte{}
	for range s.changes(r.Context()) {
		v, err := look()
		if err != nil {
			return nil //nolint:nilerr // the stream has begun; the page asks again
		}
		for _, name := range sections {
			html, err := s.html(name, v)
			if err != nil {
				s.log.WarnContext(r.Context(), "a part of the page cannot be shown", "part", name, "error", err)
				return nil
			}
			if bytes.Equal(sent[name], html) {
				continue
			}
			sent[name] = html
			if err := sendEvent(w, name, html); err != nil {
				return nil //nolint:nilerr // the reader has gone
			}
		}
		if err := control.Flush(); err != nil {
			return nil //nolint:nilerr // the reader has gone
		}
	}
	return nil
}

func sendEvent(w http.ResponseWriter, name string, data []byte) error {
	data = bytes.ReplaceAll(bytes.TrimSpace(data), []byte("\n"), []byte("\ndata: "))
	_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
	return err
}
