package link_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/emulator/link"
	"github.com/csiemu/csiemu/emulator/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = 2 * time.Minute

func secret(tb testing.TB, text string) *tls.Config {
	tb.Helper()
	config, err := link.SharedSecret([]byte(text))
	require.NoError(tb, err)
	return config
}

func rightSecret(tb testing.TB) *tls.Config { return secret(tb, "0123456789abcdef") }

// array is an array that has what it is told to have.
type array struct {
	mu       sync.Mutex
	errs     map[string]error
	attached map[string]string
}

func (a *array) SizeOf(ctx context.Context, volumeID string) (int64, error) {
	switch volumeID {
	case "blocks":
		<-ctx.Done()
		return 0, ctx.Err()
	case "panics":
		panic("in the array")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return 4096, a.errs[volumeID]
}

// exists asks for a volume's size and checks it.
func exists(c *link.Client, ctx context.Context, volumeID string) error {
	size, err := c.SizeOf(ctx, volumeID)
	if err == nil && size != 4096 {
		return fmt.Errorf("volume %s has %d bytes", volumeID, size)
	}
	return err
}

func (a *array) AttachLocal(_ context.Context, volumeID, nodeID string, readOnly bool) (map[string]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.errs[volumeID]; err != nil {
		return nil, err
	}
	if a.attached == nil {
		a.attached = map[string]string{}
	}
	a.attached[volumeID] = nodeID
	return map[string]string{"volume": volumeID, "node": nodeID, "readOnly": fmt.Sprint(readOnly)}, nil
}

func (a *array) DetachLocal(_ context.Context, volumeID, nodeID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.attached[volumeID] != nodeID {
		return fmt.Errorf("detach volume %s from %s: %w", volumeID, nodeID, backends.ErrNotFound)
	}
	delete(a.attached, volumeID)
	return nil
}

func (a *array) Authorize(_ context.Context, volumeID, method string, digests map[string]string) error {
	if volumeID == "secret" && digests["token"] != method {
		return fmt.Errorf("%s: the secret is wrong: %w", method, backends.ErrUnauthenticated)
	}
	return nil
}

// local is a node that counts its holds.
type local struct {
	volumes []string
	// held and released have an element for each success.
	held, released chan string
	// exact is what the last Hold asked.
	exact atomic.Bool
	// stuck makes Hold wait for its context.
	stuck bool
	// stubborn makes Hold succeed after its context has ended, when told.
	stubborn, ended chan struct{}
	holdErr         error
	endErr          error
}

func newLocal(volumes ...string) *local {
	return &local{volumes: volumes, held: make(chan string, 1000), released: make(chan string, 1000)}
}

func (l *local) Volumes() []string { return l.volumes }

func (l *local) Hold(ctx context.Context, volumeID string, exact bool) (func(context.Context) error, error) {
	if l.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l.stubborn != nil {
		<-ctx.Done()
		close(l.ended)
		<-l.stubborn
	}
	if l.holdErr != nil {
		return nil, l.holdErr
	}
	if volumeID == "panics" {
		panic("in the node")
	}
	l.exact.Store(exact)
	l.held <- volumeID
	return func(ctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.released <- volumeID
		return l.endErr
	}, nil
}

// events records who came and went.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) add(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.all...)
}

// text is a log that a test can read while it is written.
type text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.String()
}

func (x *text) logger() *slog.Logger { return slog.New(slog.NewTextHandler(x, nil)) }

// side is the array's side of a test.
type side struct {
	*link.Server
	endpoint rpc.Endpoint
	stop     func()
}

// socket returns an endpoint that fits sun_path.
func socket(t *testing.T) rpc.Endpoint {
	t.Helper()
	dir, err := os.MkdirTemp("", "link") //nolint:usetesting // t.TempDir has the test's name in it, too long for sun_path
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	e, err := link.ParseEndpoint("unix://" + filepath.Join(dir, "array.sock"))
	require.NoError(t, err)
	return e
}

func serve(t *testing.T, e rpc.Endpoint, o link.ServerOptions) *side {
	t.Helper()
	if o.Array == nil {
		o.Array = &array{}
	}
	if o.TLS == nil {
		o.TLS = rightSecret(t)
	}
	s, err := link.NewServer(o)
	require.NoError(t, err)
	lis, err := rpc.Listen(t.Context(), e)
	require.NoError(t, err)
	if e.Network == "tcp" {
		e.Address = lis.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, lis) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-served)
	})
	t.Cleanup(stop)
	return &side{s, e, stop}
}

func client(t *testing.T, o link.ClientOptions) *link.Client {
	t.Helper()
	if o.TLS == nil {
		o.TLS = rightSecret(t)
	}
	if o.NodeID == "" {
		o.NodeID = "node-1"
	}
	c, err := link.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// run keeps a client connected until the test ends or stop is called.
func run(t *testing.T, c *link.Client, l link.Local) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func ready(t *testing.T, c *link.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, c.Ready(ctx))
}

// requireRefused waits until a client reports why it is not let in.
func requireRefused(t *testing.T, c *link.Client, says string) error {
	t.Helper()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var err error
	require.Eventually(t, func() bool {
		err = c.Ready(over)
		return err != nil && strings.Contains(err.Error(), says)
	}, patience, 10*time.Millisecond)
	return err
}

// connected returns both sides, with node-1 connected.
func connected(t *testing.T, l *local) (*side, *link.Client) {
	t.Helper()
	s := serve(t, socket(t), link.ServerOptions{})
	c := client(t, link.ClientOptions{Endpoint: s.endpoint})
	run(t, c, l)
	ready(t, c)
	return s, c
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
