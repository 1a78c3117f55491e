package rpc

import (
	"strconv"
	"strings"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// stripped stands for what is sensitive, as protosanitizer has it.
const stripped = "***stripped***"

// minSecret is the length in bytes from which on a secret is looked for in
// texts. Shorter ones would make every text unreadable, and tell less than
// what is left.
const minSecret = 4

// sensitive reports whether the value of a map's key should not be seen, though
// the specification does not mark it. The kubelet puts service account tokens
// into volume contexts, as csi.storage.k8s.io/serviceAccount.tokens.
func sensitive(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"token", "secret", "password", "passphrase", "credential"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// readableRequest returns a request as one line of JSON without secrets, mount
// flags (which "MAY contain sensitive information") and sensitive values.
func readableRequest(request proto.Message) string {
	clean := proto.Clone(request)
	hide := func(string) string { return stripped }
	visitSensitive(clean.ProtoReflect(), hide)
	return protosanitizer.StripSecrets(clean).String()
}

// visitSensitive replaces every sensitive string in m by what replace returns.
func visitSensitive(m protoreflect.Message, replace func(string) string) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Kind() == protoreflect.StringKind:
			v.Map().Range(func(k protoreflect.MapKey, value protoreflect.Value) bool {
				if secret(field) || sensitive(k.String()) {
					v.Map().Set(k, protoreflect.ValueOfString(replace(value.String())))
				}
				return true
			})
		case field.IsList() && field.Name() == "mount_flags":
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(replace(v.List().Get(i).String())))
			}
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for i := range v.List().Len() {
				visitSensitive(v.List().Get(i).Message(), replace)
			}
		case !field.IsMap() && !field.IsList() && field.Kind() == protoreflect.MessageKind:
			visitSensitive(v.Message(), replace)
		}
		return true
	})
}

// censor takes out of a text what the request marks as secret. Errors that quote
// what they were given are the usual way for secrets into logs. Mount flags
// stay: to know which one the kernel refused is worth more.
func censor(request proto.Message, text string) string {
	m := request.ProtoReflect()
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if !field.IsMap() || !m.Has(field) {
			continue
		}
		all := secret(field)
		m.Get(field).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			if value := v.String(); (all || sensitive(k.String())) && len(value) >= minSecret {
				text = strings.ReplaceAll(text, value, stripped)
				quoted := strconv.Quote(value)
				text = strings.ReplaceAll(text, quoted[1:len(quoted)-1], stripped)
			}
			return true
		})
	}
	return text
}

// censored is censor for the message of a status.
func censored(request proto.Message, err error) error {
	s, _ := status.FromError(err)
	text := censor(request, s.Message())
	if text == s.Message() {
		return err
	}
	return status.Error(s.Code(), text)
}
