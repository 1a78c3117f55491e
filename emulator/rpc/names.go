package rpc

import (
	"fmt"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// CheckNodeID returns backends.ErrInvalid for a node id that a driver must not
// emit: empty, longer than 256 bytes, or with control characters.
func CheckNodeID(id string) error {
	if id == "" {
		return fmt.Errorf("node id is empty: %w", backends.ErrInvalid)
	}
	if text := objectionToID(id, maxNodeID); text != "" {
		return fmt.Errorf("node id %.80q %s: %w", id, text, backends.ErrInvalid)
	}
	return nil
}

// CheckDriverName returns backends.ErrInvalid for what is not a driver's name: a
// domain name of at most 63 bytes (CSI, "GetPluginInfo").
func CheckDriverName(name string) error {
	if word(name, "-.") && !strings.Contains(name, "..") {
		return nil
	}
	return fmt.Errorf("driver name %.80q is not a domain name of 1 to 63 letters, digits, '-' and '.': %w", name, backends.ErrInvalid)
}

// CheckTopology returns backends.ErrInvalid for topology segments that a driver
// must not emit (CSI, "Topology").
func CheckTopology(segments map[string]string) error {
	for key, value := range segments {
		for _, text := range []string{objectionToTopologyKey(key), objectionToTopologyValue(key, value)} {
			if text != "" {
				return fmt.Errorf("topology segment: %s: %w", text, backends.ErrInvalid)
			}
		}
	}
	return nil
}
