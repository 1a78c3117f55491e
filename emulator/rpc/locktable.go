package rpc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// lockKind is a name space of lock keys. Where one call takes several locks it
// takes them in the order of the kinds, and within a kind in the order of ids,
// so that no two calls can wait for each other.
type lockKind int

const (
	volumeName lockKind = iota
	snapshotName
	groupName
	groupSnapshot
	volume
	snapshot
)

// String returns the words for a kind in front of an id.
func (k lockKind) String() string {
	return [...]string{"volume name", "snapshot name", "group snapshot name", "group snapshot", "volume", "snapshot"}[k]
}

// lockField says where in a request the ids of a kind are. The path may lead
// through messages; its last field is a string or a list of strings. What is
// absent locks nothing.
type lockField struct {
	kind lockKind
	path string
}

// lockRow is what a method locks.
type lockRow struct {
	// same are the fields that, together, make two calls of this method the
	// same operation: while one is in flight, the other is ABORTED. What they
	// are called in that message is the first of alone.
	same []string
	// alone are locked against every other call, shared only against those that
	// want them alone.
	alone, shared []lockField
}

func byVolume(same ...string) lockRow {
	return lockRow{same: append([]string{"volume_id"}, same...), alone: []lockField{{volume, "volume_id"}}}
}

// lockTable has a row for each method that changes something. Reads lock
// nothing. Controller and node services have lock spaces of their own, so that
// the volume of a node method is that volume on that node.
var lockTable = map[string]lockRow{
	// The source must not go away meanwhile, and several volumes can be made of
	// one source at once.
	"CreateVolume": {
		same:  []string{"name"},
		alone: []lockField{{volumeName, "name"}},
		shared: []lockField{
			{snapshot, "volume_content_source.snapshot.snapshot_id"},
			{volume, "volume_content_source.volume.volume_id"},
		},
	},
	"DeleteVolume":              byVolume(),
	"ControllerPublishVolume":   byVolume("node_id"),
	"ControllerUnpublishVolume": byVolume("node_id"),
	"ControllerExpandVolume":    byVolume(),
	"ControllerModifyVolume":    byVolume(),
	"CreateSnapshot": {
		same:  []string{"name"},
		alone: []lockField{{snapshotName, "name"}, {volume, "source_volume_id"}},
	},
	"DeleteSnapshot": {
		same:  []string{"snapshot_id"},
		alone: []lockField{{snapshot, "snapshot_id"}},
	},
	"CreateVolumeGroupSnapshot": {
		same:  []string{"name"},
		alone: []lockField{{groupName, "name"}, {volume, "source_volume_ids"}},
	},
	"DeleteVolumeGroupSnapshot": {
		same:  []string{"group_snapshot_id"},
		alone: []lockField{{groupSnapshot, "group_snapshot_id"}, {snapshot, "snapshot_ids"}},
	},
	"NodeStageVolume":     byVolume("staging_target_path"),
	"NodeUnstageVolume":   byVolume("staging_target_path"),
	"NodePublishVolume":   byVolume("target_path"),
	"NodeUnpublishVolume": byVolume("target_path"),
	"NodeExpandVolume":    byVolume(),
}

// locking is a row with its fields resolved.
type locking struct {
	same  []protoreflect.FieldDescriptor
	wants []lockWant
}

type lockWant struct {
	kind   lockKind
	path   []protoreflect.FieldDescriptor
	shared bool
}

func newLocking(d protoreflect.MessageDescriptor, row lockRow) locking {
	l := locking{same: fieldsOf(d, row.same)}
	for _, field := range row.alone {
		l.wants = append(l.wants, lockWant{field.kind, pathOf(d, field.path), false})
	}
	for _, field := range row.shared {
		l.wants = append(l.wants, lockWant{field.kind, pathOf(d, field.path), true})
	}
	return l
}

func pathOf(d protoreflect.MessageDescriptor, path string) []protoreflect.FieldDescriptor {
	var fields []protoreflect.FieldDescriptor
	for name := range strings.SplitSeq(path, ".") {
		field := fieldOf(d, name)
		fields = append(fields, field)
		d = field.Message()
	}
	return fields
}

// lockKey is one lock that a call wants.
type lockKey struct {
	kind   lockKind
	id     string
	shared bool
}

// text is the key in a Keyed.
func (k lockKey) text() string { return string(rune('0'+k.kind)) + k.id }

// keys returns the locks that a request wants, in the order in which they are
// to be taken. members, if not nil, are those of a group snapshot.
func (l locking) keys(request protoreflect.Message, members func(id string) []string) []lockKey {
	keys := make([]lockKey, 0, len(l.wants))
	for _, want := range l.wants {
		keys = want.appendTo(keys, request)
	}
	if members != nil {
		for _, key := range keys {
			if key.kind != groupSnapshot {
				continue
			}
			for _, id := range members(key.id) {
				keys = append(keys, lockKey{snapshot, id, key.shared})
			}
		}
	}
	if len(keys) < 2 {
		return keys
	}
	slices.SortFunc(keys, func(a, b lockKey) int {
		if a.kind != b.kind {
			return int(a.kind) - int(b.kind)
		}
		return strings.Compare(a.id, b.id)
	})
	return slices.CompactFunc(keys, func(a, b lockKey) bool { return a.kind == b.kind && a.id == b.id })
}

func (w lockWant) appendTo(keys []lockKey, m protoreflect.Message) []lockKey {
	last := len(w.path) - 1
	for _, field := range w.path[:last] {
		if !m.Has(field) {
			return keys
		}
		m = m.Get(field).Message()
	}
	field := w.path[last]
	if !m.Has(field) {
		return keys
	}
	v := m.Get(field)
	if !field.IsList() {
		return append(keys, lockKey{w.kind, v.String(), w.shared})
	}
	for i := range v.List().Len() {
		keys = append(keys, lockKey{w.kind, v.List().Get(i).String(), w.shared})
	}
	return keys
}
