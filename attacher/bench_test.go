package attacher_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/internal/role/kube/kubetest"
)

// instant is a driver that does nothing, at once.
type instant struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
}

func (instant) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName}, nil
}

func (instant) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (instant) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME},
	}}}}, nil
}

func (instant) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "0:0"}}, nil
}

func (instant) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// drive serves the driver in memory.
func drive(tb testing.TB, driver interface {
	csi.IdentityServer
	csi.ControllerServer
},
) *grpc.ClientConn {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, driver)
	csi.RegisterControllerServer(server, driver)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///driver", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close(); server.Stop() })
	return conn
}

// BenchmarkLife attaches and detaches 1,000 volumes at a time, with an API server and
// a driver in memory that cost nothing but their encodings: what is left is the
// attacher's own share.
func BenchmarkLife(b *testing.B) {
	const volumes = 1000
	server := kubetest.New(csiNode(nodeID))
	for i := range volumes {
		server.Put(pvOf(fmt.Sprintf("pv-%d", i), fmt.Sprintf("handle-%d", i)))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- attacher.Run(ctx, attacher.Config{Client: server.Client(), Conn: drive(b, instant{}), ReconcilePeriod: -1})
	}()
	watch, err := server.Client().StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
	require.NoError(b, err)
	defer watch.Stop()
	var attaching, detaching time.Duration
	for b.Loop() {
		begin := time.Now()
		for i := range volumes {
			server.Put(vaOf(fmt.Sprintf("va-%d", i), fmt.Sprintf("pv-%d", i)))
		}
		for attached := 0; attached < volumes; {
			if va, is := (<-watch.ResultChan()).Object.(*storagev1.VolumeAttachment); is && va.Status.Attached {
				attached++
			}
		}
		attaching += time.Since(begin)
		begin = time.Now()
		for i := range volumes {
			server.Delete("volumeattachments", "", fmt.Sprintf("va-%d", i))
		}
		for gone := 0; gone < volumes; {
			if event := <-watch.ResultChan(); event.Type == "DELETED" {
				gone++
			}
		}
		detaching += time.Since(begin)
	}
	b.ReportMetric(float64(b.N*volumes)/attaching.Seconds(), "attaches/s")
	b.ReportMetric(float64(b.N*volumes)/detaching.Seconds(), "detaches/s")
	cancel()
	require.NoError(b, <-done)
}

// BenchmarkMemory has the caches hold 20,000 volumes that are attached, and reports
// what they weigh.
func BenchmarkMemory(b *testing.B) {
	const volumes = 20000
	server := kubetest.New(csiNode(nodeID))
	for i := range volumes {
		name := fmt.Sprintf("pvc-00000000-0000-0000-0000-%012d", i)
		server.Put(put(pvOf(name, "vol-"+name), func(pv *corev1.PersistentVolume) {
			pv.Finalizers = []string{"kubernetes.io/pv-protection", finalizer}
			pv.Spec.CSI.VolumeAttributes = map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1-2-" + driverName, "pool": "default"}
		}))
		server.Put(put(vaOf(fmt.Sprintf("csi-%064d", i), name), func(va *storagev1.VolumeAttachment) {
			va.Finalizers = []string{finalizer}
			va.Annotations = map[string]string{annotation: nodeID, handleNote: "vol-" + name}
			va.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"device": "7:1"}}
		}))
	}
	for b.Loop() {
		before := heap()
		status := new(attacher.Status)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- attacher.Run(ctx, attacher.Config{Client: server.Client(), Conn: drive(b, instant{}), ReconcilePeriod: -1, Status: status})
		}()
		for status.Ready() != nil {
			runtime.Gosched()
		}
		b.ReportMetric((heap()-before)/(1<<20), "MiB")
		cancel()
		require.NoError(b, <-done)
	}
}

// heap is what is in use, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
