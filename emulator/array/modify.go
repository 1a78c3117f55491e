package array

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/internal/step"
	"github.com/csiemu/csiemu/internal/undo"
)

// The mutable parameters of volumes: ControllerModifyVolume, and a
// VolumeAttributesClass, set them.
const (
	// IOPSParameter limits reads and writes a second; 0 ends the limit.
	IOPSParameter = "iops"
	// ThroughputParameter limits the bytes read and written a second, with an
	// optional unit as in 10Mi; 0 ends the limit.
	ThroughputParameter = "throughput"
	// LatencyParameter is added to each read and write, as in 5ms.
	LatencyParameter = "latency"
	// HealthParameter says what is wrong with the volume, as STATUS:Reason or
	// STATUS:Reason:message; more than one with semicolons between them. Empty
	// ends it.
	HealthParameter = "health"
)

// mutable is what mutable parameters mean.
type mutable struct {
	shaping backends.Shaping
	// shapes is true if the parameters say anything of the I/O.
	shapes bool
	health []backends.Condition
}

// parseMutable reads mutable parameters: backends.ErrInvalid for a key or value
// that has no meaning.
func parseMutable(parameters map[string]string) (m mutable, err error) {
	for key, value := range parameters {
		switch key {
		case IOPSParameter:
			m.shapes = true
			m.shaping.IOPS, err = strconv.ParseInt(value, 10, 64)
			if err != nil || m.shaping.IOPS < 0 {
				err = fmt.Errorf("%q is no number of operations a second, as in 500", value)
			}
		case ThroughputParameter:
			m.shapes = true
			m.shaping.BytesPerSecond, err = parseBytes(value)
		case LatencyParameter:
			m.shapes = true
			m.shaping.Latency, err = time.ParseDuration(value)
			if err != nil || m.shaping.Latency < 0 || m.shaping.Latency > time.Minute {
				err = fmt.Errorf("%q is no duration from 0s to 1m, as in 5ms", value)
			}
		case HealthParameter:
			m.health, err = parseHealth(value)
		default:
			err = fmt.Errorf("it is not known, only %q", []string{IOPSParameter, ThroughputParameter, LatencyParameter, HealthParameter})
		}
		if err != nil {
			return mutable{}, fmt.Errorf("mutable parameter %q: %w: %w", key, err, backends.ErrInvalid)
		}
	}
	return m, nil
}

func parseBytes(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is no number of bytes a second, as in 10Mi", text)
	}
	return int64(n), nil
}

func parseHealth(text string) ([]backends.Condition, error) {
	var all []backends.Condition
	for part := range strings.SplitSeq(text, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		status, rest, said := strings.Cut(part, ":")
		if !said {
			return nil, fmt.Errorf("%q is not of the form STATUS:Reason or STATUS:Reason:message", part)
		}
		reason, message, _ := strings.Cut(rest, ":")
		all = append(all, backends.Condition{
			Status: backends.HealthStatus(strings.TrimSpace(status)), Reason: strings.TrimSpace(reason), Message: strings.TrimSpace(message),
		})
	}
	return all, backends.CheckVolumeConditions(all)
}

// checkMutable refuses parameters that a volume with this layout cannot have.
func (a *Array) checkMutable(m mutable, layout backends.Layout) error {
	if _, ok := a.backend.(backends.BreakableBackend); m.shapes && (!ok || !layout.Breakable) {
		return fmt.Errorf("only the I/O of a breakable volume can be shaped, which this one is not: its class needs the parameter breakable (backend loop): %w", backends.ErrInvalid)
	}
	return nil
}

// shape gives the I/O of a volume the shape that its mutable parameters tell, none
// included.
func (a *Array) shape(ctx context.Context, v *Volume) error {
	b, ok := a.backend.(backends.BreakableBackend)
	if !ok || !v.Layout.Breakable {
		return nil
	}
	m, err := parseMutable(v.Mutable)
	if err == nil {
		err = b.Shape(ctx, a.bytesOf(v), m.shaping)
	}
	if err != nil {
		return fmt.Errorf("shape the I/O of volume %s: %w", v.ID, err)
	}
	return nil
}

// Modify changes mutable parameters of a volume. Those that are not named stay as
// they are. After an error nothing is changed; backends.ErrInvalid is returned
// for a parameter that is not known or that the volume cannot have.
func (a *Array) Modify(ctx context.Context, id string, parameters map[string]string) error {
	v, err := a.Volume(id)
	if err != nil {
		return fmt.Errorf("modify: %w", err)
	}
	m, err := parseMutable(parameters)
	if err == nil {
		err = a.checkMutable(m, v.Layout)
	}
	if err != nil {
		return fmt.Errorf("modify volume %s: %w", id, err)
	}
	next := v.clone()
	if next.Mutable == nil {
		next.Mutable = map[string]string{}
	}
	maps.Copy(next.Mutable, parameters)
	if _, told := parameters[HealthParameter]; told {
		next.Health = m.health
	}
	if err := a.put(ctx, next); err != nil {
		return fmt.Errorf("modify: %w", err)
	}
	err = step.Done(ctx, "array.volume.modified")
	if err == nil {
		err = a.shape(ctx, next)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("modify: %w", err), undo.Run(ctx, func(ctx context.Context) error {
			return errors.Join(a.put(ctx, v), a.shape(ctx, v))
		}))
	}
	return nil
}
