package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csiemu/csiemu/internal/safepath"
	"github.com/csiemu/csiemu/journal/redact"
)

// rule is the check of one field. The value is present.
type rule func(in *inspection, v protoreflect.Value)

// shape is what is to be checked in messages of one type. It is computed once,
// and only holds fields that have a rule.
type shape struct {
	fields []ruledField
	// whole checks what concerns several fields at once.
	whole rule
}

type ruledField struct {
	field protoreflect.FieldDescriptor
	name  string
	check rule
}

// inspect checks a message and what is in it.
func (s *shape) inspect(in *inspection, m protoreflect.Message) {
	if s.whole != nil {
		s.whole(in, protoreflect.ValueOfMessage(m))
	}
	for i := range s.fields {
		f := &s.fields[i]
		if in.err != nil {
			return
		}
		if m.Has(f.field) {
			in.at(f.name)
			f.check(in, m.Get(f.field))
			in.back()
		}
	}
}

// shapes computes the shapes of message types, each once.
type shapes map[protoreflect.FullName]*shape

func (all shapes) of(d protoreflect.MessageDescriptor) *shape {
	if s, ok := all[d.FullName()]; ok {
		return s
	}
	s := &shape{whole: wholes[d.FullName()]}
	all[d.FullName()] = s
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		if check := all.ruleOf(field); check != nil {
			s.fields = append(s.fields, ruledField{field, string(field.Name()), check})
		}
	}
	return s
}

// ruleOf finds the rule of a field by its type and, for strings, its name. The
// value of a secret, a path's length, and starting_token have no limit of ours.
func (all shapes) ruleOf(field protoreflect.FieldDescriptor) rule {
	name := string(field.Name())
	switch {
	case field.IsMap():
		switch {
		case redact.Marked(field):
			return checkSecrets
		case field.ContainingMessage().FullName() == "csi.v1.Topology":
			return checkSegments
		}
		return checkMap
	case field.Kind() == protoreflect.MessageKind:
		s := all.of(field.Message())
		if s.whole == nil && len(s.fields) == 0 {
			return nil
		}
		check := func(in *inspection, v protoreflect.Value) { s.inspect(in, v.Message()) }
		if field.IsList() {
			return each(check)
		}
		return check
	case field.Kind() == protoreflect.Int32Kind || field.Kind() == protoreflect.Int64Kind:
		if name == "starting_offset" {
			return checkOffset
		}
		return checkNumber
	case field.Kind() != protoreflect.StringKind || name == "starting_token":
		return nil
	case name == "mount_flags":
		return checkFlags
	case name == "name":
		return checkName
	case name == "volume_path":
		return checkKnownPath
	case strings.HasSuffix(name, "_path"):
		return checkPath
	case name == "node_id":
		return func(in *inspection, v protoreflect.Value) { in.object(objectionToID(v.String(), maxNodeID)) }
	case field.IsList():
		return each(checkID)
	}
	return checkID
}

func each(check rule) rule {
	return func(in *inspection, v protoreflect.Value) {
		list := v.List()
		for i := 0; i < list.Len() && in.err == nil; i++ {
			in.atIndex(i)
			check(in, list.Get(i))
			in.back()
		}
	}
}

func checkName(in *inspection, v protoreflect.Value) { in.object(objectionToName(v.String())) }

func checkID(in *inspection, v protoreflect.Value) { in.object(objectionToID(v.String(), maxString)) }

func checkNumber(in *inspection, v protoreflect.Value) {
	if v.Int() < 0 {
		in.object("is negative")
	}
}

func checkOffset(in *inspection, v protoreflect.Value) {
	if v.Int() < 0 {
		in.outOfRange("is negative")
	}
}

func checkPath(in *inspection, v protoreflect.Value) {
	if err := safepath.CheckPath(v.String()); err != nil {
		_, text := classify(err)
		in.object("must be an absolute path: " + text)
	}
}

// checkKnownPath forgives: volume_path is only looked up among the paths that
// are known, csi-test asks for "some/path", and wants NOT_FOUND.
func checkKnownPath(in *inspection, v protoreflect.Value) {
	if err := safepath.CheckPath(v.String()); err != nil {
		_, text := classify(err)
		in.forgive("must be an absolute path: " + text)
	}
}

// checkFlags says nothing of a flag's text: it may be sensitive.
func checkFlags(in *inspection, v protoreflect.Value) {
	total := 0
	for list, i := v.List(), 0; i < list.Len(); i++ {
		total += len(list.Get(i).String())
	}
	in.total(total)
}

func checkMap(in *inspection, v protoreflect.Value) {
	total := 0
	v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		total += len(k.String()) + len(v.String())
		return true
	})
	in.total(total)
}

func (in *inspection) total(bytes int) {
	if bytes > maxMap {
		in.forgive(fmt.Sprintf("has %d bytes in all, more than %d", bytes, maxMap))
	}
}

func checkSecrets(in *inspection, v protoreflect.Value) {
	checkMap(in, v)
	v.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		if !secretKey(k.String()) {
			// Not named: who mixes up keys and values sends a secret here.
			in.object("has a key that is not of [A-Za-z0-9-_.]")
		}
		return in.err == nil
	})
}
