package driver

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// watched is what a connection has that tells its state; *grpc.ClientConn does.
type watched interface {
	GetState() connectivity.State
	WaitForStateChange(ctx context.Context, from connectivity.State) bool
	Connect()
}

var _ watched = (*grpc.ClientConn)(nil)

// Connected reports whether there is a connection to the driver now. A connection
// of Over that does not tell counts as one.
func (d *Driver) Connected() bool {
	conn, tells := d.conn.conn.(watched)
	return !tells || conn.GetState() == connectivity.Ready
}

// Watch tells changed whether the driver is connected: once at the start, and at
// each change until ctx ends, which it waits for. It also keeps the connection up
// when nobody calls, so that a driver which comes back is noticed. A driver that
// went and came back between two looks is told as both.
//
// changed is called by one goroutine; while it runs, changes wait.
func (d *Driver) Watch(ctx context.Context, changed func(connected bool)) {
	conn, tells := d.conn.conn.(watched)
	if !tells {
		changed(true)
		<-ctx.Done()
		return
	}
	told := false
	tell := func(connected bool) {
		told = connected
		changed(connected)
	}
	state := conn.GetState()
	tell(state == connectivity.Ready)
	for {
		if state == connectivity.Idle {
			conn.Connect()
		}
		if state == connectivity.Shutdown || !conn.WaitForStateChange(ctx, state) {
			<-ctx.Done()
			return
		}
		was := state
		state = conn.GetState()
		if told && (was == connectivity.Ready || state != connectivity.Ready) {
			d.o.Log.LogAttrs(ctx, slog.LevelInfo, "lost the connection to the CSI driver", slog.String("driver", d.label()))
			tell(false)
		}
		if !told && state == connectivity.Ready {
			d.o.Log.LogAttrs(ctx, slog.LevelInfo, "connected to the CSI driver", slog.String("driver", d.label()))
			tell(true)
		}
	}
}
