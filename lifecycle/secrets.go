package lifecycle

import (
	"fmt"

	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/journal/redact"
)

// checkSecrets finds keys that speak of secrets in maps that are logged, listed
// and stored by everybody. The journal has no values to compare any more.
func (c *Checker) checkSecrets(e *journal.Entry) []Finding {
	var found []Finding
	check := func(field string, m map[string]string) {
		for key := range m {
			if redact.Sensitive(key) && key != c.o.TokensKey {
				found = append(found, Finding{
					Rule: SecretMisplaced, Call: e, What: fmt.Sprintf("key %q of %s looks like a secret", key, field),
				})
			}
		}
	}
	if r, ok := e.Request.(interface{ GetParameters() map[string]string }); ok {
		check("parameters", r.GetParameters())
	}
	if r, ok := e.Request.(interface{ GetMutableParameters() map[string]string }); ok {
		check("mutable_parameters", r.GetMutableParameters())
	}
	if r, ok := e.Request.(interface{ GetVolumeContext() map[string]string }); ok {
		check("volume_context", r.GetVolumeContext())
	}
	return found
}
