// Package redact takes secrets out of CSI messages and texts, so that they can be
// kept and shown.
//
// Secret is what the specification marks as such (the option csi_secret), and the
// service account tokens and the like that orchestrators put into other maps. All
// functions are safe for concurrent use.
package redact

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Stripped stands for what is secret, as csi-lib-utils' protosanitizer has it.
const Stripped = "***stripped***"

// minSecret is the length in bytes from which on a secret is looked for in
// texts. Shorter ones would make every text unreadable, and tell less than
// what is left.
const minSecret = 4

// Marked reports whether the specification marks a field as secret.
func Marked(field protoreflect.FieldDescriptor) bool {
	marked, _ := proto.GetExtension(field.Options(), csi.E_CsiSecret).(bool)
	return marked
}

// Sensitive reports whether the value of a map's key should not be seen, though
// the specification does not mark it. The kubelet puts service account tokens
// into volume contexts, as csi.storage.k8s.io/serviceAccount.tokens.
func Sensitive(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"token", "secret", "password", "passphrase", "credential"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// Message returns m without secrets: m itself if there are none, else a copy. m is
// not changed and must not change afterwards. Of mount flags only those go that
// speak of a secret, as password=…: which flags came is worth knowing.
func Message(m proto.Message) proto.Message {
	if m == nil || !holds(m.ProtoReflect()) {
		return m
	}
	return clean(m, false)
}

// MessageAndFlags is Message without mount flags either, which "MAY contain
// sensitive information". The result is always a copy.
func MessageAndFlags(m proto.Message) proto.Message { return clean(m, true) }

// Text takes out of a text what the request holds as secret. Errors that quote
// what they were given are the usual way for secrets into logs. Mount flags
// stay: to know which one the kernel refused is worth more.
func Text(request proto.Message, text string) string {
	if request == nil || text == "" {
		return text
	}
	var values []string
	r := request.ProtoReflect()
	for _, field := range mapsOf(r.Descriptor()).here {
		eachSecret(r, field, func(_ protoreflect.Map, _ protoreflect.MapKey, value string) {
			if len(value) >= minSecret {
				quoted := strconv.Quote(value)
				values = append(values, value, quoted[1:len(quoted)-1])
			}
		})
	}
	// One may begin with another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		text = strings.ReplaceAll(text, value, Stripped)
	}
	return text
}

// maps are the fields of a message type where secrets can be: its own maps of
// strings and mount flags, and its messages that have such.
type maps struct {
	here, below []protoreflect.FieldDescriptor
	// flags is the list of mount flags; nil where there is none.
	flags protoreflect.FieldDescriptor
}

func isFlags(field protoreflect.FieldDescriptor) bool {
	return field.IsList() && field.Kind() == protoreflect.StringKind && field.Name() == "mount_flags"
}

// sensitiveFlag reports whether the value of a mount flag should not be seen.
func sensitiveFlag(key string) bool { return Sensitive(key) || key == "pass" || key == "key" }

var mapsByType sync.Map // of maps, by the descriptor of the type

func mapsOf(d protoreflect.MessageDescriptor) maps {
	if known, ok := mapsByType.Load(d); ok {
		return known.(maps)
	}
	var found maps
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		switch {
		case field.IsMap():
			if field.MapValue().Kind() == protoreflect.StringKind {
				found.here = append(found.here, field)
			}
		case isFlags(field):
			found.flags = field
		case field.Kind() == protoreflect.MessageKind && field.Message().ParentFile() == d.ParentFile():
			if below := mapsOf(field.Message()); len(below.here)+len(below.below) > 0 || below.flags != nil {
				found.below = append(found.below, field)
			}
		}
	}
	mapsByType.Store(d, found)
	return found
}

// holds reports whether a message holds secrets. It is quick, as nearly all
// messages hold none.
func holds(m protoreflect.Message) bool {
	found := mapsOf(m.Descriptor())
	for _, field := range found.here {
		secret := false
		eachSecret(m, field, func(protoreflect.Map, protoreflect.MapKey, string) { secret = true })
		if secret {
			return true
		}
	}
	if found.flags != nil {
		for i, list := 0, m.Get(found.flags).List(); i < list.Len(); i++ {
			if key, _, said := strings.Cut(list.Get(i).String(), "="); said && sensitiveFlag(key) {
				return true
			}
		}
	}
	for _, field := range found.below {
		if !m.Has(field) {
			continue
		}
		if !field.IsList() {
			if holds(m.Get(field).Message()) {
				return true
			}
			continue
		}
		for i, list := 0, m.Get(field).List(); i < list.Len(); i++ {
			if holds(list.Get(i).Message()) {
				return true
			}
		}
	}
	return false
}

// eachSecret visits the secret values of a map.
func eachSecret(m protoreflect.Message, field protoreflect.FieldDescriptor, visit func(of protoreflect.Map, key protoreflect.MapKey, value string)) {
	if !m.Has(field) {
		return
	}
	all, of := Marked(field), m.Get(field).Map()
	of.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if all || Sensitive(k.String()) {
			visit(of, k, v.String())
		}
		return true
	})
}

func clean(m proto.Message, flags bool) proto.Message {
	c := proto.Clone(m)
	strip(c.ProtoReflect(), flags)
	return c
}

// strip replaces every secret in m.
func strip(m protoreflect.Message, flags bool) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Kind() == protoreflect.StringKind {
				eachSecret(m, field, func(of protoreflect.Map, k protoreflect.MapKey, _ string) {
					of.Set(k, protoreflect.ValueOfString(Stripped))
				})
			}
		case isFlags(field):
			for i := range v.List().Len() {
				if key, _, said := strings.Cut(v.List().Get(i).String(), "="); flags {
					v.List().Set(i, protoreflect.ValueOfString(Stripped))
				} else if said && sensitiveFlag(key) {
					v.List().Set(i, protoreflect.ValueOfString(key+"="+Stripped))
				}
			}
		case field.Kind() != protoreflect.MessageKind:
		case field.IsList():
			for i := range v.List().Len() {
				strip(v.List().Get(i).Message(), flags)
			}
		default:
			strip(v.Message(), flags)
		}
		return true
	})
}
