package admin_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

const (
	mib = 1 << 20
	// patience is how long a test waits on a busy machine, tick how often it looks.
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

// driver is a memory emulator with two nodes and its admin endpoint.
type driver struct {
	t        *testing.T
	emulator *emulator.Emulator
	// address is that of the admin endpoint, url the same as a URL.
	address, url string
	client       *admin.Client
	csi.ControllerClient
	csi.NodeClient
	other csi.NodeClient
}

func start(t *testing.T, edit ...func(*emulator.Config, *admin.Options)) *driver {
	t.Helper()
	c := emulator.Config{
		Backend: memory.New(memory.Options{}), CheckCaller: true, Pools: map[string]int64{"default": 1 << 40, "fast": 1 << 30},
		Nodes: []emulator.Node{{Name: "node-1"}, {Name: "node-2", Endpoint: "unix:///not-served.sock"}},
	}
	o := admin.Options{Driver: "memory.csiemu.dev", Pools: c.Pools}
	for _, f := range edit {
		f(&c, &o)
	}
	e, err := emulator.New(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	o.Emulator = e

	d := &driver{t: t, emulator: e}
	first, second := d.dial(""), d.dial("node-2")
	d.ControllerClient, d.NodeClient = csi.NewControllerClient(first), csi.NewNodeClient(first)
	d.other = csi.NewNodeClient(second)

	l, err := admin.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	d.address, d.url = admin.Address(l), "http://"+admin.Address(l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- admin.New(o).Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-served) })
	d.client, err = admin.NewClient(d.address)
	require.NoError(t, err)
	t.Cleanup(d.client.Close)
	return d
}

// dial serves a node in process and connects to it.
func (d *driver) dial(node string) *grpc.ClientConn {
	d.t.Helper()
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	require.NoError(d.t, d.emulator.Register(node, s))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	d.t.Cleanup(func() { s.Stop(); require.NoError(d.t, <-served) })
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func capability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (d *driver) create(name string, edit ...func(*csi.CreateVolumeRequest)) string {
	d.t.Helper()
	r := &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability()}, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib},
	}
	for _, f := range edit {
		f(r)
	}
	created, err := d.CreateVolume(d.t.Context(), r)
	require.NoError(d.t, err)
	return created.GetVolume().GetVolumeId()
}

func (d *driver) attach(id, node string) (*csi.ControllerPublishVolumeResponse, error) {
	return d.ControllerPublishVolume(d.t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: capability()})
}

// up attaches, stages and publishes a volume on the first node.
func (d *driver) up(id string) {
	d.t.Helper()
	attached, err := d.attach(id, "node-1")
	require.NoError(d.t, err)
	dir := d.t.TempDir()
	_, err = d.NodeStageVolume(d.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: id, PublishContext: attached.GetPublishContext(), StagingTargetPath: dir, VolumeCapability: capability(),
	})
	require.NoError(d.t, err)
	_, err = d.NodePublishVolume(d.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: id, PublishContext: attached.GetPublishContext(), StagingTargetPath: dir,
		TargetPath: filepath.Join(d.t.TempDir(), "target"), VolumeCapability: capability(),
	})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, d.emulator.Teardown(context.WithoutCancel(d.t.Context()))) })
}

// do sends a request and returns the status and the body of its answer.
func (d *driver) do(method, path, body string, edit ...func(*http.Request)) (int, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	for _, f := range edit {
		f(r)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	require.NoError(d.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(d.t, err)
	return answer.StatusCode, string(text)
}

func meant(r *http.Request) { r.Header.Set(admin.Header, "1") }

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// calls asks for calls.
func (d *driver) calls(query string) []*journal.Entry {
	d.t.Helper()
	var entries []*journal.Entry
	require.NoError(d.t, d.client.Get(d.t.Context(), "/v1/calls"+query, &entries))
	return entries
}

func methods(entries []*journal.Entry) []string {
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Method)
	}
	return names
}
