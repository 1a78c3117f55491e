package fault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/internal/step"
)

// KillPoints are the steps that crash and partial can name, with what has been
// done when they are reached and the RPCs that pass them.
func KillPoints() []KillPoint {
	var all []KillPoint
	for _, s := range step.All() {
		all = append(all, KillPoint{Name: s.Name, After: s.After, During: s.During})
	}
	return all
}

// KillPoint is a place where a call can be stopped.
type KillPoint struct {
	Name   string   `json:"name"`
	After  string   `json:"after"`
	During []string `json:"during"`
}

func checkStep(name string) error {
	if _, known := step.Find(name); known {
		return nil
	}
	return fmt.Errorf("%q is no kill point; fault.KillPoints and csiemu fault points list them", name)
}

// passes refuses a kill point that no call of a method passes, unless the method is
// a glob.
func passes(method, name string) error {
	s, known := step.Find(name)
	if !known || method == "" || strings.ContainsAny(method, "*?") || slices.Contains(s.During, method) {
		return nil
	}
	return fmt.Errorf("%s does not pass the kill point %s, only %s do", method, name, strings.Join(s.During, ", "))
}
