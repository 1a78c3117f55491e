package rpc

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal/redact"
)

// readableRequest returns a request as one line of JSON without secrets, mount
// flags (which "MAY contain sensitive information") and sensitive values.
func readableRequest(request proto.Message) string {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(redact.MessageAndFlags(request))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// censored takes what the request holds as secret out of the message of a status.
func censored(request proto.Message, err error) error {
	s, _ := status.FromError(err)
	text := redact.Text(request, s.Message())
	if text == s.Message() {
		return err
	}
	return status.Error(s.Code(), text)
}
