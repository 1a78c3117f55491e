package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/e2e/control"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

const (
	driverName = "memory.csiemu.dev"
	nodes      = 10
	// roomy is the capacity of the driver's only pool, in bytes.
	roomy = 1 << 60
)

// world is what all contenders work on: an API server and a driver.
type world struct {
	dir    string
	plane  *control.Plane
	client kubernetes.Interface

	driver   *emulator.Emulator
	journal  *journal.Journal
	endpoint string
	conn     *grpc.ClientConn
	stop     context.CancelFunc
	served   chan error
}

func newWorld(ctx context.Context, dir string) (_ *world, err error) {
	w := &world{
		dir: dir, journal: journal.New(journal.Options{Capacity: 200_000}), endpoint: "unix://" + filepath.Join(dir, "csi.sock"), served: make(chan error, 1),
		stop: func() {},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.serveDriver(ctx); err != nil {
		return nil, err
	}
	if w.plane, err = control.New(ctx, dir, control.Config{}); err != nil {
		return nil, err
	}
	if w.client, err = w.unlimited(); err != nil {
		return nil, err
	}
	for i := range nodes {
		if _, err := w.client.StorageV1().CSINodes().Create(ctx, &storage.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Spec:       storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: driverName, NodeID: nodeName(i)}}},
		}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// unlimited is a client that waits for nothing but the API server.
func (w *world) unlimited() (kubernetes.Interface, error) {
	config := rest.CopyConfig(w.plane.REST)
	config.QPS, config.Timeout = -1, 0
	return kubernetes.NewForConfig(config)
}

func nodeName(i int) string { return "node-" + strconv.Itoa(i%nodes) }

// serveDriver serves a driver without bytes: what it takes for a call is a fault's.
func (w *world) serveDriver(ctx context.Context) error {
	config := emulator.Config{
		Backend: memory.New(memory.Options{}), Journal: w.journal, Pools: map[string]int64{emulator.DefaultPool: roomy},
	}
	for i := range nodes {
		n := emulator.Node{Name: nodeName(i)}
		if i > 0 {
			n.Endpoint = "unix://" + filepath.Join(w.dir, n.Name+".sock")
		}
		config.Nodes = append(config.Nodes, n)
	}
	var err error
	if w.driver, err = emulator.New(ctx, config); err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	listeners, err := emulator.Listen(ctx, config.Endpoints(w.endpoint)...)
	if err != nil {
		return err
	}
	go func() { w.served <- w.driver.ServeOn(serving, listeners) }()
	w.conn, err = grpc.NewClient(w.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return err
}

// close ends everything.
func (w *world) close() error {
	var all error
	if w.plane != nil {
		all = errors.Join(all, w.plane.Close())
	}
	if w.conn != nil {
		all = errors.Join(all, w.conn.Close(), stopServing(w))
	}
	if w.driver != nil {
		all = errors.Join(all, w.driver.Close())
	}
	return all
}

func stopServing(w *world) error {
	w.stop()
	return <-w.served
}

// slow has the driver take a time for each call that attaches or detaches.
func (w *world) slow(ctx context.Context, latency time.Duration) error {
	if err := w.driver.ClearFaults(ctx); err != nil || latency == 0 {
		return err
	}
	for _, method := range []string{"ControllerPublishVolume", "ControllerUnpublishVolume"} {
		if _, err := w.driver.InjectText(ctx, fmt.Sprintf("%s: sleep(%s)", method, latency)); err != nil {
			return err
		}
	}
	return nil
}

// volume makes a volume in the driver.
func (w *world) volume(ctx context.Context, name string) (string, error) {
	reply, err := csi.NewControllerClient(w.conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	return reply.GetVolume().GetVolumeId(), err
}
