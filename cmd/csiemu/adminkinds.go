package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator"
)

// kind is a kind of thing that get lists.
type kind struct {
	name   string
	header []string
	// single says that an id is that of one thing.
	single bool
	// parse reads a thing and says whether it is that of an id.
	parse func(raw json.RawMessage, id string) (t thing, is bool, err error)
}

// thing is one thing as get shows it.
type thing struct {
	name string
	row  []string
	raw  json.RawMessage
}

// kinds are those of get.
func kinds() []*kind {
	return []*kind{
		{
			name: "volumes", single: true, header: []string{"ID", "NAME", "SIZE", "ACCESS", "POOL", "NODES", "HEALTH", "FAULTS", "CREATED"},
			parse: parser(func(v emulator.Volume, id string) (string, []string, bool) {
				return v.ID, []string{
					v.ID, orNone(v.Name), humanize.IBytes(uint64(v.SizeBytes)), v.Access, v.Pool, list(v.Nodes), health(v.Health), list(heads(v.Faults)), date(v.Created),
				}, id == v.ID || id == v.Name
			}),
		},
		{
			name: "snapshots", single: true, header: []string{"ID", "NAME", "VOLUME", "GROUP", "SIZE", "CREATED"},
			parse: parser(func(s emulator.Snapshot, id string) (string, []string, bool) {
				return s.ID, []string{s.ID, orNone(s.Name), s.Volume, orNone(s.Group), humanize.IBytes(uint64(s.SizeBytes)), date(s.Created)}, id == s.ID || id == s.Name
			}),
		},
		{
			name: "attachments", header: []string{"VOLUME", "NODE", "ACCESS", "READ-ONLY"},
			parse: parser(func(a emulator.Attachment, id string) (string, []string, bool) {
				return a.Volume + "/" + a.Node, []string{a.Volume, a.Node, orNone(a.Access), yes(a.ReadOnly)}, id == a.Volume
			}),
		},
		{
			name: "mounts", header: []string{"VOLUME", "NODE", "STEP", "READ-ONLY", "PATH"},
			parse: parser(func(m emulator.Mount, id string) (string, []string, bool) {
				step := "published"
				if m.Staged {
					step = "staged"
				}
				return m.Path, []string{m.Volume, m.Node, step, yes(m.ReadOnly), m.Path}, id == m.Volume
			}),
		},
		{
			name: "nodes", single: true, header: []string{"NAME", "PRESENT", "ATTACHED", "TOPOLOGY"},
			parse: parser(func(n emulator.NodeView, id string) (string, []string, bool) {
				var segments []string
				for _, key := range slices.Sorted(maps.Keys(n.Topology)) {
					segments = append(segments, key+"="+n.Topology[key])
				}
				return n.Name, []string{n.Name, yes(n.Present), fmt.Sprint(n.Attached), list(segments)}, id == n.Name
			}),
		},
	}
}

func kindNames() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// findKind finds a kind by its name, in the singular too.
func findKind(name string) *kind {
	for _, k := range kinds() {
		if name == k.name || name+"s" == k.name {
			return k
		}
	}
	return nil
}

// parser makes kind.parse of what a thing's name and row are.
func parser[T any](show func(v T, id string) (name string, row []string, is bool)) func(json.RawMessage, string) (thing, bool, error) {
	return func(raw json.RawMessage, id string) (thing, bool, error) {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return thing{}, false, fmt.Errorf("read the answer: %w", err)
		}
		name, row, is := show(v, id)
		return thing{name: name, row: row, raw: raw}, is || id == "", nil
	}
}

// read reads the things that are those of an id, or all.
func (k *kind) read(raw []json.RawMessage, id string) ([]thing, error) {
	var things []thing
	for _, r := range raw {
		t, is, err := k.parse(r, id)
		if err != nil {
			return nil, err
		}
		if is {
			things = append(things, t)
		}
	}
	return things, nil
}

// news are the things that are not as known says, and the names of those that are
// gone; known is brought up to date.
func news(known map[string]string, things []thing) (changed []thing, gone []string) {
	there := map[string]bool{}
	for _, t := range things {
		there[t.name] = true
		if known[t.name] != string(t.raw) {
			known[t.name] = string(t.raw)
			changed = append(changed, t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !there[name] {
			gone = append(gone, name)
			delete(known, name)
		}
	}
	return changed, gone
}

// widths are those of the columns of a header and things.
func widths(header []string, things []thing) []int {
	all := make([]int, len(header))
	for i, h := range header {
		all[i] = utf8.RuneCountInString(h)
		for _, t := range things {
			all[i] = max(all[i], utf8.RuneCountInString(t.row[i]))
		}
	}
	return all
}

func raws(things []thing) []json.RawMessage {
	all := []json.RawMessage{}
	for _, t := range things {
		all = append(all, t.raw)
	}
	return all
}

func list(all []string) string { return orNone(strings.Join(all, ",")) }

// heads are texts without what explains them behind a colon.
func heads(all []string) (short []string) {
	for _, text := range all {
		head, _, _ := strings.Cut(text, ":")
		short = append(short, head)
	}
	return short
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func date(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func health(all []backends.Condition) string {
	var texts []string
	for _, c := range all {
		texts = append(texts, string(c.Status)+":"+c.Reason)
	}
	return cmp.Or(strings.Join(texts, ","), "healthy")
}
