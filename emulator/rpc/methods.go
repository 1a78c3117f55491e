package rpc

import (
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// method is what the chain knows about one of CSI's methods, computed once from
// the tables and the message descriptors.
type method struct {
	// full is /csi.v1.Service/Name.
	full, name string
	request    protoreflect.MessageType
	must       []protoreflect.FieldDescriptor
	should     []protoreflect.FieldDescriptor
	// capabilities is how strictly volume capabilities are read.
	capabilities strictness
	shape        *shape
	locks        locking
	// ids are the fields that identify what a call is about, for the log.
	ids []protoreflect.FieldDescriptor
}

// methods returns all methods by their full names. The map is not to be
// changed.
var methods = sync.OnceValue(func() map[string]*method {
	all := map[string]*method{}
	known := shapes{}
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		service := services.Get(i)
		for j := range service.Methods().Len() {
			m := newMethod(service.Methods().Get(j), known)
			all[m.full] = m
		}
	}
	return all
})

func newMethod(d protoreflect.MethodDescriptor, known shapes) *method {
	request, err := protoregistry.GlobalTypes.FindMessageByName(d.Input().FullName())
	if err != nil {
		panic(fmt.Sprintf("find the request of %s: %v", d.FullName(), err))
	}
	name := string(d.Name())
	needs := required[name]
	return &method{
		full:         fmt.Sprintf("/%s/%s", d.Parent().FullName(), name),
		name:         name,
		request:      request,
		must:         fieldsOf(d.Input(), needs.must),
		should:       fieldsOf(d.Input(), needs.should),
		capabilities: needs.capabilities,
		shape:        known.of(d.Input()),
		locks:        newLocking(d.Input(), lockTable[name]),
		ids:          idsOf(d.Input()),
	}
}

func fieldsOf(d protoreflect.MessageDescriptor, names []string) []protoreflect.FieldDescriptor {
	var fields []protoreflect.FieldDescriptor
	for _, name := range names {
		fields = append(fields, fieldOf(d, name))
	}
	return fields
}

// fieldOf finds a field that a table of this package names. A name that the
// specification lacks is a mistake in the table, which every start would show.
func fieldOf(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	field := d.Fields().ByName(protoreflect.Name(name))
	if field == nil {
		panic(fmt.Sprintf("%s has no field %s", d.FullName(), name))
	}
	return field
}

// Methods returns the full names of the 36 methods of CSI 1.13, in no order.
func Methods() []string {
	names := make([]string, 0, len(methods()))
	for name := range methods() {
		names = append(names, name)
	}
	return names
}
