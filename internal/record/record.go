// Package record keeps JSON records, one directory a record, so that a volume's
// record lies beside its bytes and survives a killed process.
//
// Dir keeps them as plain files, <dir>/<kind>/<id>/record.json, Memory keeps
// them in a map for emulators that touch no disk.
//
// Names that start with a dot inside a record's directory belong to the store;
// everything else there belongs to the caller.
package record

import (
	"context"
	"errors"
	"fmt"
)

// Store keeps one JSON record for each pair of kind and id.
//
// Its methods may be called concurrently; calls for one pair queue. Kinds and
// ids are 1 to 64 bytes of [A-Za-z0-9._-] and start with a letter or a digit;
// others get ErrName, which is a mistake of the caller and never of its user.
type Store interface {
	// Put writes v, encoded as JSON, as the record of id and makes the record's
	// directory if there is none. The record is replaced as a whole: whoever
	// reads it after a crash finds the old one or the new one. A full store is
	// backends.ErrExhausted; the old record stays then.
	Put(ctx context.Context, kind, id string, v any) error
	// Delete removes the record and then its directory with everything in it,
	// but enters nothing that is mounted there. A record that is gone is no
	// error. Once the record is gone the next Open ends what a crash left of
	// the directory.
	Delete(ctx context.Context, kind, id string) error
	// Load calls each for every record of a kind in the order of their ids.
	// data is the caller's to keep. A record that cannot be read is moved aside
	// and reported, and does not stop the others; so is one for which each
	// returns an error that wraps ErrDamaged. Any other error of each ends Load.
	Load(ctx context.Context, kind string, each func(id string, data []byte) error) ([]Damaged, error)
	// Path is the record's directory, which exists from Put to Delete; it is
	// empty for a store that has no directories.
	Path(kind, id string) string
	// Close gives the store back. It waits for calls that are under way.
	Close() error
}

// Damaged is something that Load found and could not give to the caller.
type Damaged struct {
	Kind, ID string
	// Path is where it was found.
	Path string
	// MovedTo is the directory that now holds the record and all that lay
	// beside it; empty where nothing was moved: what is none of ours, records
	// of a newer version, and the rest of a Delete that did not end.
	MovedTo string
	// Err says what is wrong with it: it wraps ErrDamaged, ErrOrphan, ErrForeign
	// or ErrNewer.
	Err error
}

// String says what was found, where it is now and what to do, for a log.
func (d Damaged) String() string {
	switch {
	case d.MovedTo != "":
		return fmt.Sprintf("record %s/%s: %v; moved to %s: repair it there and move it back, or remove it", d.Kind, d.ID, d.Err, d.MovedTo)
	default:
		return fmt.Sprintf("record %s/%s: %v; left at %s", d.Kind, d.ID, d.Err, d.Path)
	}
}

// The errors of a store.
var (
	// ErrLocked is returned by Open when another process, or this one, has the
	// directory open.
	ErrLocked = errors.New("directory is locked")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store is closed")
	// ErrName is returned for kinds and ids that cannot be a file's name.
	ErrName = errors.New("not a record name")
	// ErrDamaged is what Load finds in a record that cannot be read.
	ErrDamaged = errors.New("record is damaged")
	// ErrNewer is what Load finds in a record that a newer csiemu wrote.
	ErrNewer = errors.New("record is of a newer version")
	// ErrOrphan is what Load finds in a directory that holds something, but no
	// record. No crash leaves one: a record comes before what it explains.
	ErrOrphan = errors.New("directory has no record")
	// ErrForeign is what Load finds among the records and did not make.
	ErrForeign = errors.New("none of ours")
)

// maxName is the length, in bytes, of the longest kind and id.
const maxName = 64

// checkName returns ErrName for what could leave the store's directory, be
// hidden, or be spelled differently by a file system.
func checkName(what, s string) error {
	if validName(s) {
		return nil
	}
	return fmt.Errorf("%s %.80q is not 1 to %d letters, digits, '.', '_' or '-' after a letter or digit: %w", what, s, maxName, ErrName)
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'):
		default:
			return false
		}
	}
	return true
}

func checkKind(kind string) error {
	if kind == damagedDir || kind == lockFile {
		return fmt.Errorf("kind %q is taken by the store itself: %w", kind, ErrName)
	}
	return checkName("kind", kind)
}

func checkNames(kind, id string) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	return checkName("id", id)
}

func isDamage(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrOrphan) }
