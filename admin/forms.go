package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// faultForm does what a form of the page asks for: add a fault, remove one, or
// clear all of them.
func (s *Server) faultForm(w http.ResponseWriter, r *http.Request) error {
	var err error
	rule := strings.TrimSpace(r.PostFormValue("rule"))
	switch do := r.PostFormValue("do"); do {
	case "add":
		_, err = s.inject(r.Context(), rule)
	case "remove":
		err = s.remove(r.Context(), r.PostFormValue("id"))
	case "clear":
		err = s.clear(r.Context())
	default:
		err = fmt.Errorf("read the form: %q is none of add, remove, clear: %w", do, backends.ErrInvalid)
	}
	if err == nil {
		http.Redirect(w, r, "/#faults", http.StatusSeeOther)
		return nil
	}
	v, homeErr := s.home(r.Context())
	if homeErr != nil {
		return homeErr
	}
	v.Rule, v.Problem = rule, strings.TrimSuffix(err.Error(), ": "+backends.ErrInvalid.Error())
	return s.render(w, statusOf(err), "home.html", v)
}
