package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Entry is one call. It is not to be changed.
type Entry struct {
	// Seq numbers the calls from 1 in the order in which they began.
	Seq  uint64
	Time time.Time
	// Method is the name of the RPC, FullMethod its name with the service.
	Method, FullMethod string
	// Node is the node that served the call or, for the controller, the one that
	// the request names.
	Node string
	// Name, Volume, Snapshot and Group are what the call is about, as far as its
	// request or reply tells. A call about several has them with commas between.
	Name, Volume, Snapshot, Group string
	// Request and Reply are the messages without secrets. Reply is nil for a call
	// that failed, and for a stream.
	Request, Reply proto.Message
	// Done is false while the call is under way; the fields below are not set
	// then, except for Fault and Findings.
	Done     bool
	Code     codes.Code
	Error    string
	Duration time.Duration
	// Attempt is 1, or more for a call whose like failed before: the same
	// method about the same object.
	Attempt int
	// Fault is the fault that fired in the call.
	Fault string
	// Findings are what the checker of the caller found.
	Findings []string
}

// Subject is what a call is about: calls of one method with one subject are
// attempts at the same.
type Subject struct{ Method, Node, Name, Object string }

// Subject is the same before and after the call has ended.
func (e *Entry) Subject() Subject {
	s := Subject{Method: e.Method, Node: e.Node, Name: e.Name}
	switch {
	case e.Name != "": // the reply adds the id
	case e.Volume != "":
		s.Object = e.Volume
	default:
		s.Object = e.Snapshot + "/" + e.Group
	}
	return s
}

func shortName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

// learn reads what a call made.
func (e *Entry) learn(reply proto.Message) {
	switch r := reply.(type) {
	case *csi.CreateVolumeResponse:
		e.Volume = r.GetVolume().GetVolumeId()
	case *csi.CreateSnapshotResponse:
		e.Snapshot = r.GetSnapshot().GetSnapshotId()
	case *csi.CreateVolumeGroupSnapshotResponse:
		e.Group = r.GetGroupSnapshot().GetGroupSnapshotId()
	}
}

// String is the entry in one line, for people.
func (e *Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", e.Seq, e.Method)
	for _, part := range []struct{ name, value string }{
		{"node", e.Node}, {"name", e.Name}, {"volume", e.Volume}, {"snapshot", e.Snapshot}, {"group", e.Group},
	} {
		if part.value != "" {
			fmt.Fprintf(&b, " %s=%s", part.name, part.value)
		}
	}
	if e.Attempt > 1 {
		fmt.Fprintf(&b, " attempt=%d", e.Attempt)
	}
	if e.Fault != "" {
		fmt.Fprintf(&b, " fault=%q", e.Fault)
	}
	switch {
	case !e.Done:
		b.WriteString(" under way")
	case e.Code == codes.OK:
		fmt.Fprintf(&b, " OK in %s", e.Duration.Round(time.Microsecond))
	default:
		fmt.Fprintf(&b, " %s in %s: %s", CodeName(e.Code), e.Duration.Round(time.Microsecond), e.Error)
	}
	return b.String()
}

// entryJSON is the form of an entry in files and at the admin endpoint.
type entryJSON struct {
	Seq      uint64          `json:"seq"`
	Time     time.Time       `json:"time"`
	Method   string          `json:"method"`
	Node     string          `json:"node,omitempty"`
	Name     string          `json:"name,omitempty"`
	Volume   string          `json:"volume,omitempty"`
	Snapshot string          `json:"snapshot,omitempty"`
	Group    string          `json:"group,omitempty"`
	Request  json.RawMessage `json:"request,omitempty"`
	Reply    json.RawMessage `json:"reply,omitempty"`
	Done     bool            `json:"done"`
	Code     string          `json:"code,omitempty"`
	Error    string          `json:"error,omitempty"`
	Seconds  float64         `json:"seconds,omitempty"`
	Attempt  int             `json:"attempt"`
	Fault    string          `json:"fault,omitempty"`
	Findings []string        `json:"findings,omitempty"`
}

// MarshalJSON writes an entry with the field names of the specification in its
// messages.
func (e *Entry) MarshalJSON() ([]byte, error) {
	out := entryJSON{
		Seq: e.Seq, Time: e.Time, Method: e.FullMethod, Node: e.Node, Name: e.Name, Volume: e.Volume, Snapshot: e.Snapshot, Group: e.Group,
		Done: e.Done, Error: e.Error, Seconds: e.Duration.Seconds(), Attempt: e.Attempt, Fault: e.Fault, Findings: e.Findings,
	}
	if e.Done {
		out.Code = CodeName(e.Code)
	}
	var err error
	if out.Request, err = messageJSON(e.Request); err != nil {
		return nil, fmt.Errorf("encode the request of call %d: %w", e.Seq, err)
	}
	if out.Reply, err = messageJSON(e.Reply); err != nil {
		return nil, fmt.Errorf("encode the reply of call %d: %w", e.Seq, err)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var in entryJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("decode a call: %w", err)
	}
	*e = Entry{
		Seq: in.Seq, Time: in.Time, Method: shortName(in.Method), FullMethod: in.Method, Node: in.Node,
		Name: in.Name, Volume: in.Volume, Snapshot: in.Snapshot, Group: in.Group, Done: in.Done, Error: in.Error,
		Duration: time.Duration(in.Seconds * float64(time.Second)), Attempt: in.Attempt, Fault: in.Fault, Findings: in.Findings,
	}
	if in.Done {
		code, err := ParseCode(in.Code)
		if err != nil {
			return fmt.Errorf("decode call %d: %w", in.Seq, err)
		}
		e.Code = code
	}
	request, reply := messagesOf(in.Method)
	var err error
	if e.Request, err = messageFrom(request, in.Request); err != nil {
		return fmt.Errorf("decode the request of call %d: %w", in.Seq, err)
	}
	if e.Reply, err = messageFrom(reply, in.Reply); err != nil {
		return fmt.Errorf("decode the reply of call %d: %w", in.Seq, err)
	}
	return nil
}

func messageJSON(m proto.Message) (json.RawMessage, error) {
	if m == nil {
		return nil, nil
	}
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

// messagesOf finds the messages of a method; nil for one that CSI does not have.
func messagesOf(full string) (request, reply protoreflect.MessageType) {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	method, ok := d.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		return nil, nil
	}
	request, requestErr := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	reply, replyErr := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if requestErr != nil || replyErr != nil {
		return nil, nil
	}
	return request, reply
}

func messageFrom(t protoreflect.MessageType, data json.RawMessage) (proto.Message, error) {
	if t == nil || len(data) == 0 {
		return nil, nil
	}
	m := t.New().Interface()
	return m, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}
