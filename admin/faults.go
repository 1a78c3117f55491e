package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/csiemu/csiemu/fault"
)

// FaultRequest is what POST /v1/faults takes.
type FaultRequest struct {
	// Rule is a fault in the form of fault.Parse.
	Rule string `json:"rule"`
}

// FaultAdded is what POST /v1/faults answers.
type FaultAdded struct {
	// ID is that of the fault; empty for heal, which leaves none.
	ID   string `json:"id,omitempty"`
	Rule string `json:"rule"`
	// Mechanisms say how the bytes of volumes are broken, by the volumes' ids.
	Mechanisms map[string][]string `json:"mechanisms,omitempty"`
}

func (s *Server) faults(w http.ResponseWriter, _ *http.Request) error {
	all := s.o.Emulator.Faults()
	if all == nil {
		all = []fault.Status{}
	}
	return send(w, http.StatusOK, all)
}

func (s *Server) addFault(w http.ResponseWriter, r *http.Request) error {
	var request FaultRequest
	if err := receive(r, &request); err != nil {
		return err
	}
	added, err := s.inject(r.Context(), request.Rule)
	if err != nil {
		return err
	}
	return send(w, http.StatusCreated, added)
}

// inject adds a fault and says what it has done to volumes. Once begun it does not
// end with the request.
func (s *Server) inject(ctx context.Context, text string) (FaultAdded, error) {
	ctx = context.WithoutCancel(ctx)
	rule, err := fault.Parse(text)
	if err != nil {
		return FaultAdded{}, err
	}
	added := FaultAdded{Rule: rule.String()}
	if added.ID, err = s.o.Emulator.Inject(ctx, rule); err != nil {
		return FaultAdded{}, err
	}
	s.log.InfoContext(ctx, "fault added", "id", added.ID, "rule", added.Rule)
	if !rule.AboutBytes() {
		return added, nil
	}
	volumes, err := s.o.Emulator.Volumes(ctx)
	if err != nil {
		return FaultAdded{}, fmt.Errorf("look at the volumes of the fault %s: %w", added.ID, err)
	}
	for _, v := range volumes {
		if rule.Means(v.ID, v.Name) && len(v.Faults) > 0 {
			if added.Mechanisms == nil {
				added.Mechanisms = map[string][]string{}
			}
			added.Mechanisms[v.ID] = v.Faults
		}
	}
	return added, nil
}

func (s *Server) removeFault(w http.ResponseWriter, r *http.Request) error {
	if err := s.remove(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) remove(ctx context.Context, id string) error {
	ctx = context.WithoutCancel(ctx)
	if err := s.o.Emulator.RemoveFault(ctx, id); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "fault removed", "id", id)
	return nil
}

func (s *Server) clearFaults(w http.ResponseWriter, r *http.Request) error {
	if err := s.clear(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) clear(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := s.o.Emulator.ClearFaults(ctx); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "all faults removed")
	return nil
}

func (s *Server) points(w http.ResponseWriter, _ *http.Request) error {
	return send(w, http.StatusOK, fault.KillPoints())
}
