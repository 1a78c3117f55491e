package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// handler answers a request or returns why not.
type handler func(w http.ResponseWriter, r *http.Request) error

// httpError is a failure with its status.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

// statuses are those of the kinds of failure.
var statuses = []struct {
	err    error
	status int
}{
	{backends.ErrInvalid, http.StatusBadRequest},
	{backends.ErrOutOfRange, http.StatusBadRequest},
	{backends.ErrNotFound, http.StatusNotFound},
	{backends.ErrExists, http.StatusConflict},
	{backends.ErrPrecondition, http.StatusConflict},
	{backends.ErrDataLoss, http.StatusConflict},
	{backends.ErrAborted, http.StatusConflict},
	{backends.ErrExhausted, http.StatusInsufficientStorage},
	{backends.ErrUnavailable, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	var given *httpError
	if errors.As(err, &given) {
		return given.status
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	return http.StatusInternalServerError
}

// errorBody is the form of every failure.
type errorBody struct {
	Error string `json:"error"`
}

// fail answers with a failure.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if status == http.StatusInternalServerError {
		s.log.WarnContext(r.Context(), "an admin request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	w.Header().Del("Content-Length")
	if err := send(w, status, errorBody{err.Error()}); err != nil {
		s.log.DebugContext(r.Context(), "an answer was not read", "error", err)
	}
}

// send answers with JSON, which ends with a newline.
func send(w http.ResponseWriter, status int, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(append(body, '\n'))
	return err
}

// receive reads the JSON of a request; it is backends.ErrInvalid if it is none, or
// has fields that nothing knows.
func receive(r *http.Request, v any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("read the body: %w: %w", err, backends.ErrInvalid)
	}
	if decoder.More() {
		return fmt.Errorf("read the body: more than one value: %w", backends.ErrInvalid)
	}
	return nil
}

// handle registers the methods of a path. Others are refused with JSON, too.
func (s *Server) handle(path string, methods map[string]handler) {
	var allowed []string
	for m := range methods {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		m := r.Method
		if m == http.MethodHead {
			m = http.MethodGet
		}
		h := methods[m]
		if h == nil {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.fail(w, r, &httpError{http.StatusMethodNotAllowed, fmt.Sprintf("%s knows %s only", r.URL.Path, strings.Join(allowed, ", "))})
			return
		}
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}
