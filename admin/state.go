package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/journal/redact"
	"github.com/csiemu/csiemu/lifecycle"
)

// list answers with all things of a kind; with ?watch=1 it streams them as one line
// of JSON now and whenever they change.
func (s *Server) list(all func(context.Context) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		watch := false
		if text := r.URL.Query().Get("watch"); text != "" {
			var err error
			if watch, err = strconv.ParseBool(text); err != nil {
				return fmt.Errorf("read watch: %q is neither true nor false: %w", text, backends.ErrInvalid)
			}
		}
		things, err := all(r.Context())
		if err != nil {
			return err
		}
		if !watch {
			return send(w, http.StatusOK, things)
		}
		return s.watch(w, r, all)
	}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, all func(context.Context) (any, error)) error {
	lines, err := startLines(w)
	if err != nil {
		return err
	}
	var last []byte
	for range s.changes(r.Context()) {
		things, err := all(r.Context())
		if err != nil {
			return lines.write(errorBody{err.Error()})
		}
		now, err := json.Marshal(things)
		if err != nil {
			return err
		}
		if bytes.Equal(now, last) {
			continue
		}
		last = now
		if err := lines.write(json.RawMessage(now)); err != nil {
			return nil //nolint:nilerr // the reader has gone
		}
	}
	return nil
}

// some is never nil, so that its JSON is a list.
func some[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}

func (s *Server) allVolumes(ctx context.Context) (any, error) {
	all, err := s.shownVolumes(ctx)
	return some(all), err
}

// shownVolumes are the volumes without what nobody should see.
func (s *Server) shownVolumes(ctx context.Context) ([]emulator.Volume, error) {
	all, err := s.o.Emulator.Volumes(ctx)
	for i := range all {
		all[i].Parameters, all[i].Mutable = withoutSecrets(all[i].Parameters), withoutSecrets(all[i].Mutable)
	}
	return all, err
}

// withoutSecrets is a copy in which sensitive values are stripped.
func withoutSecrets(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	shown := make(map[string]string, len(m))
	for key, value := range m {
		if redact.Sensitive(key) {
			value = redact.Stripped
		}
		shown[key] = value
	}
	return shown
}

// find returns the volume of an id, or of a name that only one has.
func (s *Server) find(ctx context.Context, idOrName string) (emulator.Volume, error) {
	all, err := s.shownVolumes(ctx)
	if err != nil {
		return emulator.Volume{}, err
	}
	var named []emulator.Volume
	for _, v := range all {
		if v.ID == idOrName {
			return v, nil
		}
		if v.Name == idOrName {
			named = append(named, v)
		}
	}
	if len(named) == 1 {
		return named[0], nil
	}
	return emulator.Volume{}, fmt.Errorf("find volume %q: %w", idOrName, backends.ErrNotFound)
}

func (s *Server) volume(w http.ResponseWriter, r *http.Request) error {
	v, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return send(w, http.StatusOK, v)
}

// setHealth takes a list of conditions; with ?node=NAME they are what that node
// reports. An empty list makes the volume healthy.
func (s *Server) setHealth(w http.ResponseWriter, r *http.Request) error {
	var conditions []backends.Condition
	if err := receive(r, &conditions); err != nil {
		return err
	}
	v, err := s.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if node := r.URL.Query().Get("node"); node != "" {
		err = s.o.Emulator.SetNodeVolumeHealth(node, v.ID, conditions...)
	} else {
		err = s.o.Emulator.SetVolumeHealth(context.WithoutCancel(r.Context()), v.ID, conditions...)
	}
	if err != nil {
		return err
	}
	s.log.InfoContext(r.Context(), "health set", "volume", v.ID, "conditions", len(conditions))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) allSnapshots(context.Context) (any, error) {
	return some(s.o.Emulator.Snapshots()), nil
}

func (s *Server) allAttachments(context.Context) (any, error) {
	return some(s.o.Emulator.Attachments()), nil
}

func (s *Server) allMounts(context.Context) (any, error) { return some(s.o.Emulator.Mounts()), nil }

func (s *Server) allNodes(context.Context) (any, error) { return some(s.o.Emulator.Nodes()), nil }

// Finding is something that the caller of the driver should not have done.
type Finding struct {
	Rule   lifecycle.Rule `json:"rule"`
	What   string         `json:"what"`
	Clause string         `json:"clause"`
	// Call is the call, Earlier the one that it does not agree with.
	Call    *journal.Entry `json:"call"`
	Earlier *journal.Entry `json:"earlier,omitempty"`
}

func (s *Server) findings(w http.ResponseWriter, _ *http.Request) error {
	all := []Finding{}
	for _, f := range s.o.Emulator.Findings() {
		all = append(all, Finding{Rule: f.Rule, What: f.What, Clause: f.Clause(), Call: f.Call, Earlier: f.Earlier})
	}
	return send(w, http.StatusOK, all)
}
