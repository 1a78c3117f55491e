package rpc_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/emulator/rpc"
)

type quick struct{ services }

func (*quick) NodePublishVolume(context.Context, *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, nil
}

// BenchmarkCall compares calls over a bare server with calls through the chain:
// the difference is what the chain costs.
func BenchmarkCall(b *testing.B) {
	request := publish(func(r *csi.NodePublishVolumeRequest) {
		r.StagingTargetPath = "/var/lib/kubelet/plugins/kubernetes.io/csi/loop.csiemu.dev/0123456789abcdef/globalmount"
		r.TargetPath = "/var/lib/kubelet/pods/b1a7ef70-0000-4000-8000-000000000000/volumes/kubernetes.io~csi/pvc-1/mount"
		r.VolumeContext = map[string]string{"csi.storage.k8s.io/pod.name": "web-0", "csi.storage.k8s.io/pod.namespace": "default"}
		r.PublishContext = map[string]string{"array": "a", "attachment": "b"}
	})
	options := map[string][]grpc.ServerOption{
		"bare":  nil,
		"chain": rpc.ServerOptions(rpc.Options{}),
		"log":   rpc.ServerOptions(rpc.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}),
	}
	for _, name := range []string{"bare", "chain", "log"} {
		b.Run(name, func(b *testing.B) {
			s := grpc.NewServer(options[name]...)
			csi.RegisterNodeServer(s, &quick{})
			client := csi.NewNodeClient(connect(b, s))
			b.ReportAllocs()
			for b.Loop() {
				_, err := client.NodePublishVolume(b.Context(), request.(*csi.NodePublishVolumeRequest))
				require.NoError(b, err)
			}
		})
	}
}

// recorder keeps the service that is registered on it.
type recorder struct {
	desc   *grpc.ServiceDesc
	server any
}

func (r *recorder) RegisterService(d *grpc.ServiceDesc, server any) { r.desc, r.server = d, server }

// BenchmarkChain is the chain and the method alone, without any connection.
func BenchmarkChain(b *testing.B) {
	request := publish(func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "/staging" })
	decode := func(m any) error {
		proto.Merge(m.(proto.Message), request)
		return nil
	}
	registrars := map[string]func(grpc.ServiceRegistrar) grpc.ServiceRegistrar{
		"bare":  func(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return s },
		"chain": func(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return rpc.Registrar(s, rpc.Options{}) },
		"log": func(s grpc.ServiceRegistrar) grpc.ServiceRegistrar {
			return rpc.Registrar(s, rpc.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		},
	}
	for _, name := range []string{"bare", "chain", "log"} {
		b.Run(name, func(b *testing.B) {
			r := &recorder{}
			csi.RegisterNodeServer(registrars[name](r), &quick{})
			i := slices.IndexFunc(r.desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == "NodePublishVolume" })
			b.ReportAllocs()
			for b.Loop() {
				_, err := r.desc.Methods[i].Handler(r.server, b.Context(), decode, nil)
				require.NoError(b, err)
			}
		})
	}
}
