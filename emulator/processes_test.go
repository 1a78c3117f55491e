//go:build linux

package emulator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/mount"
	"github.com/csiemu/csiemu/internal/testenv"
)

// serviceEnv makes this test binary serve one half of a driver instead of
// running tests.
const serviceEnv = "CSIEMU_TEST_SERVICE"

// service is one process of a driver: its state, socket and link.
type service struct {
	Services    emulator.Services
	Node        string
	Dir, Socket string
	Array       string
	NoAttach    bool
}

// runAsService serves until standard input ends, when the environment asks for
// it.
func runAsService() bool {
	spec := os.Getenv(serviceEnv)
	if spec == "" {
		return false
	}
	var s service
	err := json.Unmarshal([]byte(spec), &s)
	if err == nil {
		err = letGo()
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// letGo unmounts what the new mount namespace copied from the tests that go on
// beside this one: their devices would stay busy for as long as this process
// lives.
func letGo() error {
	mounts, err := mount.ListUnder(filepath.Dir(os.TempDir()))
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := mount.Detach(m.MountPoint); err != nil {
			return err
		}
	}
	return nil
}

func (s service) run() error {
	backend, err := loop.New(loop.Options{Dir: s.Dir})
	if err != nil {
		return err
	}
	tls, err := link.SharedSecret([]byte("a secret of the test, long enough"))
	if err != nil {
		return err
	}
	profile := emulator.DefaultProfile("loop")
	if s.NoAttach {
		profile.Disable("PUBLISH_UNPUBLISH_VOLUME")
	}
	c := emulator.Config{
		Backend: backend, StateDir: s.Dir, Services: s.Services, Profile: profile, Link: emulator.Link{TLS: tls},
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if s.Services == emulator.ControllerService {
		c.Link.Listen = s.Array
	} else {
		c.Link.Array, c.Nodes = s.Array, []emulator.Node{{Name: s.Node}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e, err := emulator.New(ctx, c)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := e.Serve(ctx, "unix://"+s.Socket); err != nil {
		return err
	}
	return e.Close()
}

// process is a running service in a mount namespace of its own.
type process struct {
	clients
	service service
	cmd     *exec.Cmd
	stdin   io.Closer
}

func (s service) start(t *testing.T) *process {
	t.Helper()
	require.NoError(t, os.MkdirAll(s.Dir, 0o700))
	spec, err := json.Marshal(s)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env = append(os.Environ(), serviceEnv+"="+string(spec))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{service: s, cmd: cmd, stdin: stdin}
	t.Cleanup(func() { p.kill() })
	p.clients = dial(t, s.Socket)
	_, err = p.Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return p
}

// kill ends the process at whatever instruction it is, and waits.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// end lets the process end by itself.
func (p *process) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	require.NoError(t, p.cmd.Wait())
}

// path is a path as the process sees it: its mounts are in its own namespace.
func (p *process) path(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, path)
}

func (p *process) write(t *testing.T, v *volume, text string) {
	t.Helper()
	f, err := os.Create(p.path(filepath.Join(v.target, "data")))
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}

func (p *process) requireText(t *testing.T, v *volume, text string) {
	t.Helper()
	got, err := os.ReadFile(p.path(filepath.Join(v.target, "data")))
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// cluster is an array and two nodes, each a process in its own mount
// namespace.
type cluster struct {
	controller *process
	nodes      [2]*process
	dir        string
}

func startCluster(t *testing.T, noAttach bool) *cluster {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4)
	dir := shortDir(t)
	array := "unix://" + filepath.Join(dir, "array.sock")
	c := &cluster{dir: dir}
	c.controller = service{
		Services: emulator.ControllerService, Dir: filepath.Join(dir, "array"), Array: array,
		Socket: filepath.Join(dir, "c.sock"), NoAttach: noAttach,
	}.start(t)
	for i := range c.nodes {
		name := fmt.Sprintf("n%d", i+1)
		c.nodes[i] = service{
			Services: emulator.NodeService, Node: name, Dir: filepath.Join(dir, name), Array: array,
			Socket: filepath.Join(dir, name+".sock"), NoAttach: noAttach,
		}.start(t)
	}
	return c
}

// on is the driver as an orchestrator sees it from node i.
func (c *cluster) on(t *testing.T, i int) *driver {
	return &driver{t: t, dir: filepath.Join(c.dir, fmt.Sprintf("kubelet-%d", i)), clients: clients{
		IdentityClient: c.controller.IdentityClient, ControllerClient: c.controller.ControllerClient,
		GroupControllerClient: c.controller.GroupControllerClient, NodeClient: c.nodes[i].NodeClient,
	}}
}

// attachWhenKnown waits for the node's process to be connected to the array.
func (v *volume) attachWhenKnown() {
	v.d.t.Helper()
	require.Eventually(v.d.t, func() bool {
		resp, err := v.d.ControllerPublishVolume(v.d.t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: v.id, NodeId: v.node, VolumeCapability: v.capability,
		})
		v.publishContext = resp.GetPublishContext()
		return err == nil
	}, patience, tick)
}

func TestArrayAndNodesInTheirOwnProcesses(t *testing.T) {
	t.Parallel()
	c := startCluster(t, false)
	first, second := c.on(t, 0), c.on(t, 1)

	v := first.create("moves", mountCapability("ext4"), 64*mib)
	v.attachWhenKnown()
	v.stage()
	v.publish()
	c.nodes[0].write(t, v, "written on the first node")

	t.Log("a snapshot freezes the file system in the node's namespace")
	snap := first.snapshot("cut", v.id)
	c.nodes[0].write(t, v, "written after the cut")

	t.Log("the node serves while the array is away")
	c.controller.kill()
	stats, err := first.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target})
	require.NoError(t, err)
	require.Positive(t, stats.GetUsage()[0].GetUsed())
	c.nodes[0].requireText(t, v, "written after the cut")
	v.unpublish()
	v.publish()
	_, err = first.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "other", VolumePath: v.target})
	wantCode(t, codes.NotFound, err)
	v.unpublish()
	v.unstage()

	t.Log("the array comes back and the volume moves to the other node")
	c.controller = c.controller.service.start(t)
	v.detach()
	moved := second.place(v.created, "moves", v.capability)
	moved.attachWhenKnown()
	moved.stage()
	moved.publish()
	c.nodes[1].requireText(t, moved, "written after the cut")

	t.Log("a killed node takes its namespace with it; staging again is enough")
	c.nodes[1].kill()
	c.nodes[1] = c.nodes[1].service.start(t)
	moved.d.NodeClient = c.nodes[1].NodeClient
	_, err = moved.d.NodePublishVolume(t.Context(), moved.publishRequest())
	wantCode(t, codes.FailedPrecondition, err)
	moved.stage()
	moved.publish()
	c.nodes[1].requireText(t, moved, "written after the cut")
	moved.down()
	moved.delete()

	restored := c.on(t, 1).create("restored", mountCapability("ext4"), 64*mib, fromSnapshot(snap.GetSnapshotId()))
	restored.attachWhenKnown()
	restored.stage()
	restored.publish()
	c.nodes[1].requireText(t, restored, "written on the first node")
	restored.down()
	restored.delete()
	_, err = c.on(t, 0).DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshotId()})
	require.NoError(t, err)
	for _, p := range c.nodes {
		p.end(t)
	}
	c.controller.end(t)
}

func TestNodeAttachesByItselfWhereCallersDoNot(t *testing.T) {
	t.Parallel()
	c := startCluster(t, true)
	d := c.on(t, 0)
	v := d.create("local", mountCapability("ext4"), 64*mib)
	require.Eventually(t, func() bool {
		_, err := d.NodeStageVolume(t.Context(), v.stageRequest())
		return err == nil
	}, patience, tick)
	v.publish()
	c.nodes[0].write(t, v, "no ControllerPublishVolume")
	_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
	wantCode(t, codes.FailedPrecondition, err)

	t.Log("the node cleans up while the array is away, which learns of it later")
	v.unpublish()
	c.controller.kill()
	v.unstage()
	c.controller = c.controller.service.start(t)
	d.ControllerClient = c.controller.ControllerClient
	require.Eventually(t, func() bool {
		_, err := d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.id})
		return err == nil
	}, patience, tick)
}
