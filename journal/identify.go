package journal

import (
	"reflect"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// What requests can have.
type (
	named     interface{ GetName() string }
	ofVolume  interface{ GetVolumeId() string }
	ofSource  interface{ GetSourceVolumeId() string }
	ofSources interface{ GetSourceVolumeIds() []string }
	ofOne     interface{ GetSnapshotId() string }
	ofMany    interface{ GetSnapshotIds() []string }
	ofGroup   interface{ GetGroupSnapshotId() string }
	ofNode    interface{ GetNodeId() string }
)

// traits are what requests of a type have. To find out that one has not is slow,
// and is done once.
type traits struct{ named, volume, source, sources, one, many, group, node bool }

var traitsByType sync.Map // of traits, by reflect.Type

func traitsOf(request proto.Message) traits {
	t := reflect.TypeOf(request)
	if known, ok := traitsByType.Load(t); ok {
		return known.(traits)
	}
	var has traits
	_, has.named = request.(named)
	_, has.volume = request.(ofVolume)
	_, has.source = request.(ofSource)
	_, has.sources = request.(ofSources)
	_, has.one = request.(ofOne)
	_, has.many = request.(ofMany)
	_, has.group = request.(ofGroup)
	_, has.node = request.(ofNode)
	traitsByType.Store(t, has)
	return has
}

// identify reads what a request is about.
func (e *Entry) identify(request proto.Message) {
	if request == nil {
		return
	}
	has := traitsOf(request)
	if has.named {
		e.Name = request.(named).GetName()
	}
	switch {
	case has.sources:
		e.Volume = strings.Join(request.(ofSources).GetSourceVolumeIds(), ",")
	case has.source:
		e.Volume = request.(ofSource).GetSourceVolumeId()
	case has.volume:
		e.Volume = request.(ofVolume).GetVolumeId()
	}
	switch {
	case has.one:
		e.Snapshot = request.(ofOne).GetSnapshotId()
	case has.many:
		e.Snapshot = strings.Join(request.(ofMany).GetSnapshotIds(), ",")
	default:
		if r, ok := request.(*csi.GetMetadataDeltaRequest); ok {
			e.Snapshot = r.GetBaseSnapshotId() + "," + r.GetTargetSnapshotId()
		}
	}
	if has.group {
		e.Group = request.(ofGroup).GetGroupSnapshotId()
	}
	if has.node && e.Node == "" {
		e.Node = request.(ofNode).GetNodeId()
	}
}
