package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

const (
	// version is the version of the envelope. It changes when an older csiemu
	// must not read what a newer one wrote.
	version = 1
	// maxBytes bounds a record. Ours are a few KiB; the bound keeps a record
	// that grew by damage from taking the memory of the process.
	maxBytes = 16 << 20
)

// envelope repeats kind and id, so that a record in the wrong place (a restored
// backup, a directory that was copied by hand) is seen.
type envelope struct {
	Version int             `json:"version"`
	Kind    string          `json:"kind"`
	ID      string          `json:"id"`
	Data    json.RawMessage `json:"data"`
}

// encode wraps v. The names are checked already and need no quoting.
func encode(kind, id string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record %s/%s: %w", kind, id, err)
	}
	if len(data) > maxBytes-1024 {
		return nil, fmt.Errorf("encode record %s/%s: %d bytes are more than a record holds", kind, id, len(data))
	}
	b := make([]byte, 0, len(data)+len(kind)+len(id)+64)
	b = fmt.Appendf(b, `{"version":%d,"kind":"%s","id":"%s","data":`, version, kind, id)
	b = append(b, data...)
	return append(b, '}', '\n'), nil
}

// decode unwraps what encode made. The errors wrap ErrDamaged or ErrNewer.
func decode(kind, id string, b []byte) (json.RawMessage, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("it is empty: %w", ErrDamaged)
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("it is not UTF-8: %w", ErrDamaged)
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("it is not a JSON record (%w): %w", err, ErrDamaged)
	}
	switch {
	case e.Version > version:
		return nil, fmt.Errorf("it has version %d, this csiemu reads %d: %w", e.Version, version, ErrNewer)
	case e.Version != version:
		return nil, fmt.Errorf("it has version %d: %w", e.Version, ErrDamaged)
	case e.Kind != kind || e.ID != id:
		return nil, fmt.Errorf("it is the record of %.80q/%.80q: %w", e.Kind, e.ID, ErrDamaged)
	case len(e.Data) == 0 || bytes.Equal(e.Data, []byte("null")):
		return nil, fmt.Errorf("it has no data: %w", ErrDamaged)
	}
	return e.Data, nil
}
