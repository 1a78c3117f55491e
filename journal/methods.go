package journal

import (
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Methods are the names of all RPCs of CSI, sorted.
func Methods() []string { return slices.Clone(methodNames()) }

var methodNames = sync.OnceValue(func() []string {
	var names []string
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		for j, methods := 0, services.Get(i).Methods(); j < methods.Len(); j++ {
			names = append(names, string(methods.Get(j).Name()))
		}
	}
	slices.Sort(names)
	return names
})
