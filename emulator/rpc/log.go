package rpc

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// log writes one line a call when it ends: method, the ids it is about, code
// and duration. At debug level another one with the request comes first.
func (c *chain) log(ctx context.Context, call *Call) error {
	if c.o.Log.Enabled(ctx, slog.LevelDebug) {
		c.o.Log.LogAttrs(ctx, slog.LevelDebug, "call begins",
			slog.String("method", call.method.name), slog.String("request", readableRequest(call.Request)))
	}
	start := time.Now()
	err := call.Next(ctx)
	code := status.Code(err)
	if level := levelOf(code); c.o.Log.Enabled(ctx, level) {
		c.o.Log.LogAttrs(ctx, level, "call", c.attrs(call, time.Since(start), code, err)...)
	}
	return err
}

func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		return slog.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelWarn
}

func (c *chain) attrs(call *Call, took time.Duration, code codes.Code, err error) []slog.Attr {
	attrs := make([]slog.Attr, 0, 10)
	attrs = append(attrs, slog.String("method", call.method.name))
	if call.Node != "" {
		attrs = append(attrs, slog.String("node", call.Node))
	}
	request := call.Request.ProtoReflect()
	for _, field := range call.method.ids {
		if !request.Has(field) {
			continue
		}
		v := request.Get(field)
		text := ""
		if field.IsList() {
			text = joined(v.List())
		} else {
			text = v.String()
		}
		attrs = append(attrs, slog.String(string(field.Name()), shortened(text)))
	}
	attrs = append(attrs, madeBy(call.Reply)...)
	attrs = append(attrs, slog.String("code", code.String()), slog.Duration("took", took))
	if err != nil {
		attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
	}
	return attrs
}

// idsOf finds the fields that say what a call is about.
func idsOf(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var ids []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		name := string(field.Name())
		if field.Kind() == protoreflect.StringKind && !field.IsMap() &&
			(name == "name" || strings.HasSuffix(name, "_id") || strings.HasSuffix(name, "_ids")) {
			ids = append(ids, field)
		}
	}
	return ids
}

// madeBy names what a call made.
func madeBy(reply any) []slog.Attr {
	switch r := reply.(type) {
	case *csi.CreateVolumeResponse:
		return []slog.Attr{slog.String("volume_id", r.GetVolume().GetVolumeId())}
	case *csi.CreateSnapshotResponse:
		return []slog.Attr{slog.String("snapshot_id", r.GetSnapshot().GetSnapshotId())}
	case *csi.CreateVolumeGroupSnapshotResponse:
		return []slog.Attr{slog.String("group_snapshot_id", r.GetGroupSnapshot().GetGroupSnapshotId())}
	}
	return nil
}

func joined(list protoreflect.List) string {
	all := make([]string, list.Len())
	for i := range all {
		all[i] = list.Get(i).String()
	}
	return strings.Join(all, ",")
}

// shortened keeps a request that breaks the limits from filling the log.
func shortened(s string) string {
	const most = 2 * maxNodeID
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
