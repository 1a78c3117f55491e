package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/internal/role/pause"
)

// How often Await asks, and how often it tells a reason that stays the same.
const (
	probeEvery = 500 * time.Millisecond
	tellEvery  = 30 * time.Second
)

// ErrNotReady is in the reason that Await tells while the driver answers that it
// is not ready yet.
var ErrNotReady = errors.New("the driver says that it is not ready")

// Await waits until the driver answers Probe with ready, without limit but ctx, whose
// error it returns. late, unless nil, gets the reason for the wait: the first, each
// that is another one, and every 30 s the same again. A driver without Probe
// (UNIMPLEMENTED) counts as ready: it can say no more.
func (d *Driver) Await(ctx context.Context, late func(error)) error {
	return await(ctx, late, d.probe)
}

// Meet is Await for a driver that must also say who it is, for which it may take
// timeout at each attempt.
func (d *Driver) Meet(ctx context.Context, timeout time.Duration, late func(error)) (id Identity, err error) {
	err = await(ctx, late, func(ctx context.Context) (err error) {
		if err := d.probe(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		id, err = d.Identity(ctx)
		return err
	})
	return id, err
}

func await(ctx context.Context, late func(error), attempt func(context.Context) error) error {
	var told string
	var at time.Time
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if end, has := ctx.Deadline(); has && !time.Now().Before(end) {
			<-ctx.Done() // gRPC may notice first; that it did is no reason of the driver's
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for the CSI driver: %w", errors.Join(ctx.Err(), err))
		}
		if text := err.Error(); late != nil && (text != told || time.Since(at) >= tellEvery) {
			late(err)
			told, at = text, time.Now()
		}
		if pause.For(ctx, probeEvery) != nil {
			return fmt.Errorf("wait for the CSI driver: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// probe is one attempt.
func (d *Driver) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.o.ProbeTimeout)
	defer cancel()
	reply, err := csi.NewIdentityClient(d.conn).Probe(ctx, &csi.ProbeRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return fmt.Errorf("probe: %w", err)
	case reply.GetReady() != nil && !reply.GetReady().GetValue():
		return fmt.Errorf("probe: %w", ErrNotReady)
	}
	return nil
}
