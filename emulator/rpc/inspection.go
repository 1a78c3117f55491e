package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Finding is a fault of a caller that did not fail its call: the specification
// forbids it, but nothing is lost by serving the call. Under Options.Strict
// such calls are refused instead.
type Finding struct {
	// Method is the full method, such as /csi.v1.Controller/CreateVolume.
	Method string
	// Field is the path of the field, such as
	// volume_capabilities[0].mount.mount_flags.
	Field string
	// Text says what is wrong with it. It contains nothing sensitive.
	Text string
}

// String returns the finding as a sentence.
func (f Finding) String() string { return f.Field + " " + f.Text }

// inspection is the check of one request.
type inspection struct {
	ctx    context.Context
	method *method
	strict bool
	tell   func(context.Context, Finding)
	// path leads to the field that is looked at.
	path []element
	// err is the first objection, which ends the inspection.
	err error
}

// inspections are those that no call uses.
var inspections = sync.Pool{New: func() any { return new(inspection) }}

// element is the name of a field, or the index in a list.
type element struct {
	name  string
	index int
}

func (in *inspection) at(name string)      { in.path = append(in.path, element{name: name}) }
func (in *inspection) atIndex(i int)       { in.path = append(in.path, element{index: i}) }
func (in *inspection) back()               { in.path = in.path[:len(in.path)-1] }
func (in *inspection) object(s string)     { in.fail(codes.InvalidArgument, s) }
func (in *inspection) outOfRange(s string) { in.fail(codes.OutOfRange, s) }

// fail ends the inspection with an error, unless text is empty.
func (in *inspection) fail(code codes.Code, text string) {
	if text != "" && in.err == nil {
		in.err = status.Errorf(code, "%s: %s %s", in.method.name, in.field(), text)
	}
}

// forgive reports a finding, or fails where the server is strict.
func (in *inspection) forgive(text string) {
	if in.strict {
		in.object(text)
	} else if in.tell != nil {
		in.tell(in.ctx, Finding{in.method.full, in.field(), text})
	}
}

// field returns the path of the field that is looked at.
func (in *inspection) field() string {
	var b strings.Builder
	for _, s := range in.path {
		switch {
		case s.name == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}
