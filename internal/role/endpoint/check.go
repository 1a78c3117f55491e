package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Check is one thing that must be well.
type Check struct {
	// Name is what it is called in answers and as the last part of its own path,
	// /readyz/NAME.
	Name string
	// Do returns what is wrong, nil if nothing is. It should not wait longer than
	// ctx, which ends with the request.
	Do func(ctx context.Context) error
}

// checked answers for a list of checks: 200 if all are well, else 503. The body is
// plain text, "ok" or a line for each that is not; all of them with ?verbose. With
// ?format=json, or an Accept header that asks for it, it is JSON.
type checked struct {
	checks []Check
	detail func() any
}

// result is how a check ended, as it is in JSON.
type result struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

// answer is the JSON form of an answer.
type answer struct {
	OK     bool     `json:"ok"`
	Checks []result `json:"checks"`
	Detail any      `json:"detail,omitempty"`
}

// ServeHTTP is http.Handler.
func (c checked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	only := r.PathValue("check")
	a := answer{OK: true, Checks: []result{}}
	for _, check := range c.checks {
		if only != "" && only != check.Name {
			continue
		}
		one := result{Name: check.Name, OK: true}
		if err := check.Do(r.Context()); err != nil {
			one.OK, one.Reason, a.OK = false, err.Error(), false
		}
		a.Checks = append(a.Checks, one)
	}
	if only != "" && len(a.Checks) == 0 {
		http.Error(w, fmt.Sprintf("no check is called %q", only), http.StatusNotFound)
		return
	}
	verbose := r.URL.Query().Has("verbose")
	if c.detail != nil {
		a.Detail = c.detail()
	}
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Query().Get("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json") {
		a.writeJSON(w)
		return
	}
	a.writeText(w, verbose)
}

func (a answer) status() int {
	if a.OK {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (a answer) writeJSON(w http.ResponseWriter) {
	body, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status())
	_, _ = w.Write(append(body, '\n'))
}

func (a answer) writeText(w http.ResponseWriter, verbose bool) {
	var body strings.Builder
	for _, one := range a.Checks {
		switch {
		case !one.OK:
			fmt.Fprintf(&body, "%s: %s\n", one.Name, one.Reason)
		case verbose:
			fmt.Fprintf(&body, "%s: ok\n", one.Name)
		}
	}
	if a.OK {
		body.WriteString("ok\n")
	}
	if verbose && a.Detail != nil {
		if detail, err := json.MarshalIndent(a.Detail, "", "  "); err == nil {
			body.Write(append(detail, '\n'))
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.status())
	_, _ = w.Write([]byte(body.String()))
}
