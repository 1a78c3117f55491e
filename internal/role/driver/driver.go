// Package driver is what all roles share about a CSI driver: a connection that
// lasts, its identity, and what it can do.
//
// The connection is made when it is first needed, and made again when the driver
// comes back; nothing in here ends the process, or gives up before its context does.
// Each call is counted in the field's metric and logged without secrets.
package driver

import (
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// How soon a driver that comes back is reached. Sockets of one machine cost
// nothing to try.
const (
	firstRetry     = 50 * time.Millisecond
	lastRetry      = 500 * time.Millisecond
	connectTimeout = 5 * time.Second
)

// Options change a connection. The zero value is ready for use.
type Options struct {
	// Log gets each call at debug level, without secrets, and the loss and the
	// return of the driver at info level. nil logs nothing.
	Log *slog.Logger
	// Metrics is where csi_sidecar_operations_seconds is registered; drivers
	// that share a registry share the metric. nil counts nothing.
	Metrics prometheus.Registerer
	// ProbeTimeout bounds each call of Probe in Await. 0 means 5 s.
	ProbeTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ProbeTimeout <= 0 {
		o.ProbeTimeout = 5 * time.Second
	}
	return o
}

// Driver is a CSI driver as its callers see it. It is safe for concurrent use.
type Driver struct {
	o    Options
	conn *observed
	// own is the connection that Dial made; nil after Over.
	own *grpc.ClientConn
	// name is what Identity last answered.
	name atomic.Pointer[string]
}

// Dial returns a driver at an address: a path, unix://PATH, unix:PATH, or
// tcp://HOST:PORT. It does not wait for the driver, which may come later; Await does.
// The caller closes it.
//
// Replies may be as long as gRPC can carry, as a list of all volumes exceeds its
// usual 4 MiB. The connection is never given up for idleness.
func Dial(address string, o Options) (*Driver, error) {
	at, err := parse(address)
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %q: %w", address, err)
	}
	conn, err := grpc.NewClient("passthrough:///driver",
		grpc.WithContextDialer(at.dial),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRetry},
			MinConnectTimeout: connectTimeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver %q: %w", address, err)
	}
	d, err := over(conn, o)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to CSI driver %q: %w", address, err)
	}
	d.own = conn
	return d, nil
}

// Over returns a driver behind a connection of the caller's, such as one in memory.
// It fails only if the metric cannot be registered. The connection stays the
// caller's: Close does not close it.
func Over(conn grpc.ClientConnInterface, o Options) (*Driver, error) {
	d, err := over(conn, o)
	if err != nil {
		return nil, fmt.Errorf("use a connection to a CSI driver: %w", err)
	}
	return d, nil
}

// Connect is Over for a connection, and Dial for an address where conn is nil.
func Connect(conn grpc.ClientConnInterface, address string, o Options) (*Driver, error) {
	if conn != nil {
		return Over(conn, o)
	}
	return Dial(address, o)
}

func over(conn grpc.ClientConnInterface, o Options) (*Driver, error) {
	o = o.withDefaults()
	operations, err := register(o.Metrics)
	if err != nil {
		return nil, err
	}
	d := &Driver{o: o}
	d.conn = &observed{conn: conn, log: o.Log, operations: operations, driver: d.label}
	return d, nil
}

// Conn is the connection, for the generated clients. Calls over it are counted
// and logged. While the driver is away they fail at once with UNAVAILABLE.
func (d *Driver) Conn() grpc.ClientConnInterface { return d.conn }

// Name is the driver's name as Identity last saw it, "" before.
func (d *Driver) Name() string {
	if name := d.name.Load(); name != nil {
		return *name
	}
	return ""
}

// unknownDriver is the label of calls before the name is known, as csi-lib-utils
// has it.
const unknownDriver = "unknown-driver"

func (d *Driver) label() string {
	if name := d.Name(); name != "" {
		return name
	}
	return unknownDriver
}

// Close ends the connection that Dial made; calls under way fail with CANCELED.
func (d *Driver) Close() error {
	if d.own == nil {
		return nil
	}
	return d.own.Close()
}
