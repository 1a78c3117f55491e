package attacher

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/csiemu/csiemu/internal/role/kube"
)

// Status tells how a Run goes that has it in its Config, for health checks. The
// zero value is ready for use, also from other goroutines.
type Status struct {
	mu      sync.Mutex
	away    error // why the driver cannot be called
	working bool  // whether caches are filled and work is done
	link    *kube.Link
	held    interface{ Check(*http.Request) error }
}

// Ready is nil while attaches and detaches are done: this process leads, its caches
// are filled and kept, and the driver is there. Otherwise it says what is missing.
func (s *Status) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.away != nil:
		return fmt.Errorf("the driver cannot be called: %w", s.away)
	case s.link != nil && s.link.Down() != nil:
		return fmt.Errorf("the API server cannot be watched: %w", s.link.Down())
	case !s.working:
		return errors.New("not working: the lease is another's, or the caches are not filled yet")
	}
	return nil
}

// Lease fails once a lease that was held has run out for 20 s and work goes on
// nevertheless.
func (s *Status) Lease() error {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held == nil {
		return nil
	}
	return held.Check(nil)
}

func (s *Status) driver(away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *Status) watches(link *kube.Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = link
}

func (s *Status) works(working bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working = working
}

func (s *Status) lease(held interface{ Check(*http.Request) error }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
}
