package backends

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"
)

// HealthStatus is how bad a condition of a volume is, by the names of CSI's
// VolumeHealthErrorType.
type HealthStatus string

const (
	// Degraded is a volume that is usable, but not as it should be.
	Degraded HealthStatus = "DEGRADED"
	// Inaccessible is a volume that cannot be used now.
	Inaccessible HealthStatus = "INACCESSIBLE"
	// DataLoss is a volume whose data is gone, or is thought to be.
	DataLoss HealthStatus = "DATA_LOSS"
)

// Condition is one thing that is wrong with a volume.
type Condition struct {
	Status HealthStatus `json:"status"`
	// Reason is one word in CamelCase, unique for the volume and Status.
	Reason string `json:"reason"`
	// Message is for people, and may be empty.
	Message string `json:"message,omitempty"`
}

// HealthBackend is a backend that can see what is wrong with the bytes of a
// volume. A healthy one has no conditions.
type HealthBackend interface {
	Health(context.Context, Volume) ([]Condition, error)
}

// HealthNode is a node half that can see what is wrong with a staged volume there.
type HealthNode interface {
	Health(context.Context, Staged) ([]Condition, error)
}

// maxMessage is CSI's limit for strings, in bytes ("Size Limits").
const maxMessage = 128

// reasonForm is one word in CamelCase.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,127}$`)

// CheckConditions returns ErrInvalid for conditions that cannot be told by CSI: with
// a status that is none of those allowed, a reason that is not one word in
// CamelCase, or two with the same status and reason.
func CheckConditions(all []Condition, allowed ...HealthStatus) error {
	for i, c := range all {
		if !slices.Contains(allowed, c.Status) {
			return fmt.Errorf("health status %q is none of %q: %w", c.Status, allowed, ErrInvalid)
		}
		if !reasonForm.MatchString(c.Reason) {
			return fmt.Errorf("health reason %q is not one word in CamelCase: %w", c.Reason, ErrInvalid)
		}
		if len(c.Message) > maxMessage || !utf8.ValidString(c.Message) {
			return fmt.Errorf("health message %.40q is longer than %d bytes, or no UTF-8: %w", c.Message, maxMessage, ErrInvalid)
		}
		if slices.ContainsFunc(all[:i], c.same) {
			return fmt.Errorf("health status %s with reason %s is given twice: %w", c.Status, c.Reason, ErrInvalid)
		}
	}
	return nil
}

// CheckVolumeConditions is CheckConditions for those of a volume.
func CheckVolumeConditions(all []Condition) error {
	return CheckConditions(all, Degraded, Inaccessible, DataLoss)
}

func (c Condition) same(d Condition) bool { return c.Status == d.Status && c.Reason == d.Reason }

// Conditions joins what several sources say; each status with a reason is told
// once, by the first.
func Conditions(sources ...[]Condition) []Condition {
	var all []Condition
	for _, source := range sources {
		for _, c := range source {
			if !slices.ContainsFunc(all, c.same) {
				all = append(all, c)
			}
		}
	}
	return all
}
