package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Match says which calls are meant: all whose method and fields fit the globs, in
// which * stands for any text and ? for one character. The zero value matches
// every call.
type Match struct {
	// Method is a glob of the RPC's name; empty matches all.
	Method string
	// Fields are globs by the name of what they are about:
	//
	//	node, name, volume, snapshot, group  what the call is about; volume also
	//	                                     matches the name in CreateVolume,
	//	                                     snapshot that in CreateSnapshot
	//	code                                 as in UNAVAILABLE; a call under way
	//	                                     has none
	//	fault                                the fault that fired
	//	param.KEY                            a parameter or mutable parameter of
	//	                                     the request
	//	context.KEY                          a key of its volume or publish context
	//	request.PATH                         a field of the request by its path, as
	//	                                     in request.capacity_range.limit_bytes
	Fields map[string]string
}

// fieldNames are the fields without a dot.
var fieldNames = []string{"node", "name", "volume", "snapshot", "group", "code", "fault"}

// Matches reports whether an entry is meant.
func (m Match) Matches(e *Entry) bool { return len(m.differences(e)) == 0 }

// difference is a field in which a call is not what is meant.
type difference struct{ field, have, want string }

func (d difference) String() string { return fmt.Sprintf("%s is %q, want %q", d.field, d.have, d.want) }

// differences are all fields in which an entry is not what is meant.
func (m Match) differences(e *Entry) []difference {
	var all []difference
	if m.Method != "" && !fits(m.Method, e.Method) {
		all = append(all, difference{"method", e.Method, m.Method})
	}
	for _, field := range slices.Sorted(maps.Keys(m.Fields)) {
		want, fit := m.Fields[field], false
		values := e.values(field)
		for _, have := range values {
			fit = fit || fits(want, have)
		}
		if !fit {
			all = append(all, difference{field, strings.Join(values, " or "), want})
		}
	}
	return all
}

// values are what a field has in an entry: more than one where several may be
// meant.
func (e *Entry) values(field string) []string {
	kind, key, dotted := strings.Cut(field, ".")
	if dotted {
		return e.requestValues(kind, key)
	}
	switch field {
	case "node":
		return []string{e.Node}
	case "name":
		return []string{e.Name}
	case "volume":
		values := strings.Split(e.Volume, ",")
		if e.Method == "CreateVolume" {
			values = append(values, e.Name)
		}
		return values
	case "snapshot":
		values := strings.Split(e.Snapshot, ",")
		if e.Method == "CreateSnapshot" {
			values = append(values, e.Name)
		}
		return values
	case "group":
		values := []string{e.Group}
		if e.Method == "CreateVolumeGroupSnapshot" {
			values = append(values, e.Name)
		}
		return values
	case "code":
		if e.Done {
			return []string{CodeName(e.Code)}
		}
	case "fault":
		return []string{e.Fault}
	}
	return nil
}

func (e *Entry) requestValues(kind, key string) []string {
	if e.Request == nil {
		return nil
	}
	var values []string
	add := func(m map[string]string) {
		if value, ok := m[key]; ok {
			values = append(values, value)
		}
	}
	switch kind {
	case "param":
		if r, ok := e.Request.(interface{ GetParameters() map[string]string }); ok {
			add(r.GetParameters())
		}
		if r, ok := e.Request.(interface{ GetMutableParameters() map[string]string }); ok {
			add(r.GetMutableParameters())
		}
	case "context":
		if r, ok := e.Request.(interface{ GetVolumeContext() map[string]string }); ok {
			add(r.GetVolumeContext())
		}
		if r, ok := e.Request.(interface{ GetPublishContext() map[string]string }); ok {
			add(r.GetPublishContext())
		}
	case "request":
		if value, ok := fieldAt(e.Request, key); ok {
			values = append(values, value)
		}
	}
	return values
}

// fieldAt is the text of a field of a message, by its path with dots. A field that
// is not set has the text of its zero value.
func fieldAt(m proto.Message, path string) (string, bool) {
	at := m.ProtoReflect()
	names := strings.Split(path, ".")
	for i, name := range names {
		field := at.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return "", false
		}
		switch last := i == len(names)-1; {
		case !last && field.Kind() == protoreflect.MessageKind && !field.IsList() && !field.IsMap():
			at = at.Get(field).Message()
		case !last:
			return "", false
		case field.Kind() == protoreflect.EnumKind && !field.IsList():
			number := at.Get(field).Enum()
			if value := field.Enum().Values().ByNumber(number); value != nil {
				return string(value.Name()), true
			}
			return strconv.Itoa(int(number)), true
		default:
			return at.Get(field).String(), true
		}
	}
	return "", false
}

// HasGlobs reports whether some field may have more than one value.
func (m Match) HasGlobs() bool {
	for _, value := range m.Fields {
		if strings.ContainsAny(value, "*?") {
			return true
		}
	}
	return false
}

// fits reports whether a text fits a glob.
func fits(glob, text string) bool {
	// star is behind the last * that was passed, and mark where it began to take.
	star, mark, g, t := -1, 0, 0, 0
	pattern, runes := []rune(glob), []rune(text)
	for t < len(runes) {
		switch {
		case g < len(pattern) && pattern[g] == '*':
			g++
			star, mark = g, t
		case g < len(pattern) && (pattern[g] == '?' || pattern[g] == runes[t]):
			g++
			t++
		case star >= 0: // the star takes one more
			mark++
			g, t = star, mark
		default:
			return false
		}
	}
	for g < len(pattern) && pattern[g] == '*' {
		g++
	}
	return g == len(pattern)
}

// String is the match in the form that ParseMatch reads.
func (m Match) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(m.Method, "*"))
	if len(m.Fields) == 0 {
		return b.String()
	}
	for i, field := range slices.Sorted(maps.Keys(m.Fields)) {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(quoteIfNeeded(field, "="))
		b.WriteByte('=')
		b.WriteString(quoteIfNeeded(m.Fields[field], ""))
	}
	b.WriteByte('}')
	return b.String()
}

// special are the characters that a word without quotes cannot have.
const special = "{},\" \t\n"

func quoteIfNeeded(text, more string) string {
	if text == "" || strings.ContainsAny(text, special+more) || strconv.Quote(text) != `"`+text+`"` {
		return strconv.Quote(text)
	}
	return text
}

// ParseMatch reads METHOD{FIELD=GLOB,…}: the name of an RPC, or a glob, and
// optionally fields of Match.Fields. Words with special characters stand in double
// quotes, as in Go.
func ParseMatch(text string) (Match, error) {
	m, rest, err := ReadMatch(text)
	if err == nil && strings.TrimSpace(rest) != "" {
		err = fmt.Errorf("%q follows", rest)
	}
	if err != nil {
		return Match{}, fmt.Errorf("read %q: %w; want METHOD{FIELD=GLOB,…}", text, err)
	}
	return m, nil
}

// ReadMatch reads a match at the beginning of a text and returns what follows.
func ReadMatch(text string) (m Match, rest string, err error) {
	rest = strings.TrimLeft(text, " \t\n")
	end := strings.IndexFunc(rest, func(r rune) bool { return !isMethod(r) })
	if end < 0 {
		end = len(rest)
	}
	if m.Method, rest = rest[:end], rest[end:]; m.Method == "" {
		return Match{}, "", errors.New("it names no method")
	}
	if err := checkMethod(m.Method); err != nil {
		return Match{}, "", err
	}
	if !strings.HasPrefix(rest, "{") {
		return m, rest, nil
	}
	m.Fields = map[string]string{}
	for sep := byte('{'); sep != '}'; {
		rest = rest[1:]
		var field, value string
		if field, rest, err = readWord(rest, "="); err != nil {
			return Match{}, "", err
		}
		if rest == "" || rest[0] != '=' {
			return Match{}, "", fmt.Errorf("field %q has no value", field)
		}
		if value, rest, err = readWord(rest[1:], ""); err != nil {
			return Match{}, "", err
		}
		if err := checkField(field, value); err != nil {
			return Match{}, "", err
		}
		if _, twice := m.Fields[field]; twice {
			return Match{}, "", fmt.Errorf("field %q is given twice", field)
		}
		m.Fields[field] = value
		if rest == "" || (rest[0] != ',' && rest[0] != '}') {
			return Match{}, "", fmt.Errorf("neither , nor } follows the field %q", field)
		}
		sep = rest[0]
	}
	return m, rest[1:], m.checkPaths()
}

func isMethod(r rune) bool {
	return r == '*' || r == '?' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// readWord reads a word, in quotes or up to a special character.
func readWord(text, more string) (word, rest string, err error) {
	text = strings.TrimLeft(text, " \t\n")
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", errors.New("a quote is not closed")
		}
		word, err := strconv.Unquote(quoted)
		return word, strings.TrimLeft(text[len(quoted):], " \t\n"), err
	}
	end := strings.IndexAny(text, special+more)
	if end < 0 {
		end = len(text)
	}
	if end == 0 {
		return "", "", errors.New("a word is missing")
	}
	return text[:end], strings.TrimLeft(text[end:], " \t\n"), nil
}

// checkMethod refuses a method that no RPC of CSI has, and a glob that fits none.
func checkMethod(glob string) error {
	for _, name := range Methods() {
		if fits(glob, name) {
			return nil
		}
	}
	return fmt.Errorf("CSI has no RPC %q", glob)
}

// checkPaths refuses paths that no request of the methods has.
func (m Match) checkPaths() error {
	for field := range m.Fields {
		path, ok := strings.CutPrefix(field, "request.")
		if ok && !slices.ContainsFunc(requestsOf(m.Method), func(r proto.Message) bool { _, has := fieldAt(r, path); return has }) {
			return fmt.Errorf("no request of %s has the field %s", cmp.Or(m.Method, "*"), path)
		}
	}
	return nil
}

func checkField(field, value string) error {
	kind, key, dotted := strings.Cut(field, ".")
	switch {
	case dotted && key != "" && slices.Contains([]string{"param", "context", "request"}, kind):
		return nil
	case field == "code" && !strings.ContainsAny(value, "*?"):
		_, err := ParseCode(value)
		return err
	case !dotted && slices.Contains(fieldNames, field):
		return nil
	}
	return fmt.Errorf("field %q is none of %s, param.KEY, context.KEY, request.PATH", field, strings.Join(fieldNames, ", "))
}
