package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

// call makes a CSI call and compares its code, and keeps the id of what it made in
// $ID: call csi.sock Controller/CreateVolume OK '{"name": "a"}'
func call(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: call SOCKET SERVICE/METHOD CODE REQUEST")
	}
	want, err := journal.ParseCode(args[2])
	ts.Check(err)
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("csi.v1." + strings.ReplaceAll(args[1], "/", ".")))
	ts.Check(err)
	method, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		ts.Fatalf("%s is no method", args[1])
	}
	request, reply := message(ts, method.Input()), message(ts, method.Output())
	ts.Check(protojson.Unmarshal([]byte(args[3]), request))

	conn, err := grpc.NewClient("unix://"+ts.MkAbs(args[0]), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = conn.Invoke(ctx, "/csi.v1."+args[1], request, reply)
	if status.Code(err) != want {
		ts.Fatalf("%s: %v, want %s", args[1], err, args[2])
	}
	if want != codes.OK {
		return
	}
	switch r := reply.(type) {
	case *csi.CreateVolumeResponse:
		ts.Setenv("ID", r.GetVolume().GetVolumeId())
	case *csi.CreateSnapshotResponse:
		ts.Setenv("ID", r.GetSnapshot().GetSnapshotId())
	}
}

func message(ts *testscript.TestScript, d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	ts.Check(err)
	return t.New().Interface()
}

// command is a command line that runs.
type command struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  func() int
}

// begin runs a command line until stop.
func begin(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, args, func(string) (string, bool) { return "", false }, writer, os.Stderr)
		_ = writer.Close()
		ended <- code
	}()
	c := &command{t: t, lines: bufio.NewScanner(reader)}
	c.stop = func() int {
		cancel()
		_, err := io.Copy(io.Discard, reader) // the rest
		require.NoError(t, err)
		return <-ended
	}
	return c
}

// line is the next line, without the spaces that align it.
func (c *command) line() string {
	c.t.Helper()
	require.True(c.t, c.lines.Scan(), "it ended: %v", c.lines.Err())
	return strings.Join(strings.Fields(c.lines.Text()), " ")
}

// served is an emulator with an admin endpoint in this process.
func served(t *testing.T) (emu *emulator.Emulator, address string) {
	t.Helper()
	emu, err := emulator.New(t.Context(), emulator.Config{Backend: memory.New(memory.Options{}), Nodes: []emulator.Node{{Name: "node-1"}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, emu.Close()) })
	l, err := admin.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- admin.New(admin.Options{Emulator: emu}).Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return emu, admin.Address(l)
}

// enter puts a call into the journal.
func enter(emu *emulator.Emulator, volume string) {
	emu.Journal().Begin("/csi.v1.Controller/DeleteVolume", "", &csi.DeleteVolumeRequest{VolumeId: volume}).End(&csi.DeleteVolumeResponse{}, nil)
}

func TestCallsAreFollowed(t *testing.T) {
	t.Parallel()
	emu, address := served(t)
	enter(emu, "vol-1")
	c := begin(t, "calls", "-f", "--admin", address)
	require.Equal(t, "SEQ TIME METHOD NODE ABOUT CODE TOOK NOTE", c.line())
	require.Regexp(t, `^1 \S+ DeleteVolume - vol-1 OK \S+$`, c.line())
	enter(emu, "vol-2")
	require.Regexp(t, `^2 \S+ DeleteVolume - vol-2 OK \S+$`, c.line())
	require.Zero(t, c.stop())

	c = begin(t, "calls", "-f", "-o", "json", "--volume", "vol-2", "--admin", address)
	require.Contains(t, c.line(), `"volume":"vol-2"`)
	require.Zero(t, c.stop())
}

func TestChangesAreWatched(t *testing.T) {
	t.Parallel()
	emu, address := served(t)
	volume := make(chan string, 1)
	conn := inProcess(t, emu)
	create := func() {
		created, err := conn.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "a", VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
		})
		require.NoError(t, err)
		volume <- created.GetVolume().GetVolumeId()
	}
	names := begin(t, "get", "volumes", "-w", "-o", "name", "--admin", address)
	yaml := begin(t, "get", "volumes", "-w", "-o", "yaml", "--admin", address)
	json := begin(t, "get", "volumes", "-w", "-o", "json", "--admin", address)
	table := begin(t, "get", "volumes", "-w", "--admin", address)
	require.Equal(t, "ID NAME SIZE ACCESS POOL NODES HEALTH FAULTS CREATED", table.line())
	create()
	id := <-volume
	require.Equal(t, id, names.line())
	require.Equal(t, "---", yaml.line())
	require.Equal(t, "id: "+id, yaml.line())
	require.Contains(t, json.line(), `"id":"`+id+`"`)
	require.Regexp(t, "^"+id+" a 1.0 GiB block default - healthy - ", table.line())
	require.NoError(t, emu.SetVolumeHealth(t.Context(), id, backends.Condition{Status: backends.Degraded, Reason: "SlowDisk"}))
	require.Equal(t, id, names.line())
	require.Regexp(t, "^"+id+" a 1.0 GiB block default - DEGRADED:SlowDisk - ", table.line())
	_, err := conn.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	require.NoError(t, err)
	require.Equal(t, id+" gone", names.line())
	require.Equal(t, id+" gone", table.line())
	for _, c := range []*command{names, yaml, json, table} {
		require.Zero(t, c.stop())
	}
}

// inProcess is the controller of an emulator over a socket of its own.
func inProcess(t *testing.T, emu *emulator.Emulator) csi.ControllerClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := grpc.NewServer()
	require.NoError(t, emu.Register("", s))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-ended) })
	conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return csi.NewControllerClient(conn)
}
