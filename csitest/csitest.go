// Package csitest gives a Go test a CSI driver with storage of its own: a double
// that behaves as the specification says, breaks on command, and says what was
// called.
//
//	func TestAttacherRetries(t *testing.T) {
//		d := csitest.New(t)
//		d.Inject("ControllerPublishVolume: 2*return(UNAVAILABLE)->ok")
//		runTheCodeUnderTest(d.Conn())
//		d.Journal().Want(t, "CreateVolume", "ControllerPublishVolume{code=OK}")
//	}
//
// Without options the double keeps records and no bytes, needs neither root nor
// Linux, starts in a millisecond, and works inside testing/synctest, where an
// attach of eleven minutes takes none. Loop and Tmpfs make volumes real.
//
// With real volumes take staging paths and targets from Double.TempDir, or have
// Double.Publish make them: directories of t.TempDir that are made after the double
// are removed before it, with what is mounted in them.
//
// When the test ends, everything goes: calls are stopped, volumes are unpublished,
// unstaged, detached and freed. Calls of the test that broke the volume lifecycle
// fail it, and so does anything that cannot be taken away. After a failure the
// last calls are in the log; with the flag -csitest.keep volumes stay, and how to
// remove them is in the log too. Doubles are independent of each other: tests with them
// can be parallel.
package csitest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

// TB is what a double needs of testing.TB. Ginkgo's GinkgoT() is one too.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
	Name() string
}

// Double is a driver under a test. It is safe for concurrent use until the test
// ends.
type Double struct {
	tb       TB
	o        options
	emulator *emulator.Emulator
	nodes    []*Node
	// dir holds sockets and, for real volumes, the store; it is made when it is
	// first needed, and is in madeDir then.
	dir     func() (string, error)
	mu      sync.Mutex
	madeDir string
	// volumes counts those of Publish.
	volumes atomic.Int64
}

// Node is one node of a double. The first one's connection also has the identity
// and controller services.
type Node struct {
	csi.NodeClient
	// Name is the node id.
	Name string

	double *Double
	server *grpc.Server
	conn   *grpc.ClientConn
	// endpoint serves on a socket too, once.
	endpoint func() (string, error)
}

// New starts a double that ends with the test.
func New(tb TB, opts ...Option) *Double {
	tb.Helper()
	d := &Double{tb: tb}
	d.dir = sync.OnceValues(d.makeDir)
	for _, option := range opts {
		option(&d.o)
	}
	if reason := missing(); d.o.open != nil && reason != "" {
		if os.Getenv("CSITEST_REQUIRE_REAL") != "" {
			tb.Fatalf("csitest: %s", reason)
		}
		tb.Skipf("csitest: %s", reason)
	}
	if err := d.start(); err != nil {
		tb.Fatalf("start a CSI driver: %v", err)
	}
	return d
}

// start makes the emulator and serves it in memory.
func (d *Double) start() error {
	d.tb.Cleanup(func() { d.end(context.Background()) })
	config, err := d.config()
	if err != nil {
		return err
	}
	d.emulator, err = emulator.New(context.Background(), config)
	if err != nil {
		return err
	}
	for i, n := range config.Nodes {
		if err := d.serve(n.Name, i == 0); err != nil {
			return err
		}
	}
	return d.injectAll(context.Background())
}

// bufferBytes is the room of a connection in memory.
const bufferBytes = 64 << 10

func (d *Double) serve(name string, first bool) error {
	n := &Node{Name: name, double: d, server: grpc.NewServer(grpc.WaitForHandlers(true))}
	n.endpoint = sync.OnceValues(n.listen)
	registered := name
	if first {
		registered = ""
	}
	if err := d.emulator.Register(registered, n.server); err != nil {
		return err
	}
	listener := bufconn.Listen(bufferBytes)
	go func() { _ = n.server.Serve(listener) }() // ends with Stop
	conn, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.server.Stop()
		return err
	}
	n.conn, n.NodeClient = conn, csi.NewNodeClient(conn)
	d.nodes = append(d.nodes, n)
	return nil
}

// Conn is a connection, in memory, to all services of the driver with those of its
// first node.
func (d *Double) Conn() *grpc.ClientConn { return d.nodes[0].conn }

// Identity is a client of the identity service.
func (d *Double) Identity() csi.IdentityClient { return csi.NewIdentityClient(d.Conn()) }

// Controller is a client of the controller service.
func (d *Double) Controller() csi.ControllerClient { return csi.NewControllerClient(d.Conn()) }

// Groups is a client of the group controller service.
func (d *Double) Groups() csi.GroupControllerClient { return csi.NewGroupControllerClient(d.Conn()) }

// Metadata is a client of the snapshot metadata service.
func (d *Double) Metadata() csi.SnapshotMetadataClient {
	return csi.NewSnapshotMetadataClient(d.Conn())
}

// Nodes are the nodes, at least one.
func (d *Double) Nodes() []*Node { return d.nodes }

// Node is a node by its name; an unknown one fails the test.
func (d *Double) Node(name string) *Node {
	d.tb.Helper()
	for _, n := range d.nodes {
		if n.Name == name {
			return n
		}
	}
	d.tb.Fatalf("the double has no node %q; give it one with csitest.Nodes", name)
	return nil
}

// Conn is a connection to the services of the node.
func (n *Node) Conn() *grpc.ClientConn { return n.conn }

// Endpoint is where the driver also serves, unix:///path.sock with a short path,
// for code under test that wants one. The socket is made on the first call. Inside
// a bubble of testing/synctest it fails the test, as nothing wakes a bubble from
// outside: use Conn there.
func (d *Double) Endpoint() string {
	d.tb.Helper()
	return d.nodes[0].Endpoint()
}

// Endpoint is Double.Endpoint for the node.
func (n *Node) Endpoint() string {
	n.double.tb.Helper()
	if inBubble() {
		n.double.tb.Fatalf("csitest: a socket cannot be used inside a bubble of testing/synctest; use Conn")
	}
	endpoint, err := n.endpoint()
	if err != nil {
		n.double.tb.Fatalf("serve node %s: %v", n.Name, err)
	}
	return endpoint
}

// inBubble reports whether this goroutine is in a bubble of testing/synctest. The
// package does not tell, but its clock does: it begins at the turn of the year
// 2000, and no real one is that late.
func inBubble() bool { return time.Now().Year() < 2020 }

func (n *Node) listen() (string, error) {
	dir, err := n.double.dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, n.Name+".sock")
	const longest = 100 // sun_path has 104 bytes on some systems
	if len(path) > longest {
		path = filepath.Join(dir, fmt.Sprintf("n%d.sock", slices.Index(n.double.nodes, n)))
	}
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return "", err
	}
	go func() { _ = n.server.Serve(listener) }() // ends with Stop
	return "unix://" + path, nil
}

func (d *Double) makeDir() (string, error) {
	// t.TempDir has the test's name in it, which is too long for sockets.
	dir, err := os.MkdirTemp("", "csitest-")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.madeDir = dir
	return dir, err
}

// made is the directory, if there is one.
func (d *Double) made() (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.madeDir, d.madeDir != ""
}

// TempDir returns a new directory for staging paths and targets. It is removed when
// the volumes are taken away, unlike one of t.TempDir that was made after the double,
// which goes first, with what is mounted in it.
func (d *Double) TempDir() string {
	d.tb.Helper()
	dir, err := d.dir()
	if err == nil {
		dir, err = os.MkdirTemp(dir, "t")
	}
	if err != nil {
		d.tb.Fatalf("make a directory: %v", err)
	}
	return dir
}

// Emulator is the driver itself, for what the double has no short way to.
func (d *Double) Emulator() *emulator.Emulator { return d.emulator }

// Journal is the record of the calls, with assertions.
func (d *Double) Journal() *journal.Journal { return d.emulator.Journal() }
