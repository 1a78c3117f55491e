package conformance

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Limits of the specification, in bytes ("Size Limits").
const (
	stringLimit = 128
	mapLimit    = 4096
	nodeIDLimit = 256
)

// limits fails the row for every field of a response that is past its limit or
// negative.
func (c *check) limits(m proto.Message) {
	c.Helper()
	for _, broken := range brokenLimits(m.ProtoReflect()) {
		c.Errorf("want an answer within the limits, got %s", broken)
	}
}

func brokenLimits(m protoreflect.Message) (broken []string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			total := 0
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				total += len(k.String()) + len(v.String())
				return true
			})
			if total > mapLimit {
				broken = append(broken, fmt.Sprintf("%s with %d bytes: a map has at most %d", f.Name(), total, mapLimit))
			}
		case f.IsList():
			for i := range v.List().Len() {
				broken = append(broken, brokenValue(f, v.List().Get(i))...)
			}
		default:
			broken = append(broken, brokenValue(f, v)...)
		}
		return true
	})
	return broken
}

func brokenValue(f protoreflect.FieldDescriptor, v protoreflect.Value) []string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return brokenLimits(v.Message())
	case protoreflect.StringKind:
		limit := stringLimit
		if f.Name() == "node_id" || f.Name() == "published_node_ids" {
			limit = nodeIDLimit
		}
		if n := len(v.String()); n > limit {
			return []string{fmt.Sprintf("%s with %d bytes: it has at most %d", f.Name(), n, limit)}
		}
	case protoreflect.Int64Kind, protoreflect.Int32Kind:
		// Times before 1970 have a name of their own.
		if v.Int() < 0 && f.Name() != "seconds" {
			return []string{fmt.Sprintf("%s of %d: it must not be negative", f.Name(), v.Int())}
		}
	}
	return nil
}

var (
	domainForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)
	labelForm  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`)
	prefixForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	wordForm   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$`)
	camelForm  = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*$`)
)

const segmentLimit = 63

// topology fails the row if segments are not of the form that the message
// Topology demands.
func (c *check) topology(all ...*csi.Topology) {
	c.Helper()
	prefixes := map[string]bool{}
	for _, t := range all {
		if len(t.GetSegments()) == 0 {
			c.Errorf("want a topology with a segment, got %v", t)
		}
		keys := map[string]bool{}
		for key, value := range t.GetSegments() {
			prefix, name, prefixed := strings.Cut(key, "/")
			if !prefixed {
				name = key
			} else {
				prefixes[prefix] = true
				if len(prefix) > segmentLimit || !prefixForm.MatchString(prefix) {
					c.Errorf("want a prefix of at most %d lower-case letters, digits, dashes and dots, got key %q", segmentLimit, key)
				}
			}
			if len(name) > segmentLimit || !wordForm.MatchString(name) {
				c.Errorf("want a name of at most %d letters, digits, dashes, underscores and dots, got key %q", segmentLimit, key)
			}
			if len(value) > segmentLimit || !wordForm.MatchString(value) {
				c.Errorf("want a value of at most %d letters, digits, dashes, underscores and dots, got %q for %q", segmentLimit, value, key)
			}
			if keys[strings.ToLower(key)] {
				c.Errorf("want keys that differ by more than their case, got %v", t.GetSegments())
			}
			keys[strings.ToLower(key)] = true
		}
	}
	if len(prefixes) > 1 {
		c.Errorf("want one prefix in all keys, got %v", all)
	}
}
