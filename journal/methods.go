package journal

import (
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
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

// requestsOf are empty requests of the RPCs that a glob fits; empty fits all.
func requestsOf(glob string) []proto.Message {
	var all []proto.Message
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		for j, methods := 0, services.Get(i).Methods(); j < methods.Len(); j++ {
			d := methods.Get(j)
			if glob != "" && !fits(glob, string(d.Name())) {
				continue
			}
			if t, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName()); err == nil {
				all = append(all, t.New().Interface())
			}
		}
	}
	return all
}
