// Package attacher is the Kubernetes role between VolumeAttachments and a CSI
// driver: it publishes a volume to a node when one is made, and unpublishes it when
// one is to be deleted, as external-attacher does.
//
// It works with any driver. What it does otherwise than external-attacher, and why,
// is in docs/attacher.md; Config.Strict takes back what differs in writes.
package attacher

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/kube"
)

var (
	// ErrLeaseLost is returned by Run when the lease could not be renewed in
	// time. Calls under way were given up.
	ErrLeaseLost = kube.ErrLeaseLost
	// ErrOtherDriver is returned by Run when another driver answers than the one
	// that Config.DriverName names, or than the one that answered before.
	ErrOtherDriver = errors.New("another CSI driver answers")
)

// Run attaches and detaches until ctx ends, and returns nil then: calls under way
// have ended, the lease is given back, nothing runs any more. It waits for a driver
// and for an API server that come late or go away.
//
// It returns an error for a Config that cannot be used, ErrOtherDriver and
// ErrLeaseLost. It never ends the process.
func Run(ctx context.Context, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return fmt.Errorf("run the attacher: %w", err)
	}
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(c.Log.Handler()))
	d, err := driver.Connect(c.Conn, c.Endpoint, driver.Options{Log: c.Log, Metrics: c.Metrics})
	if err != nil {
		return fmt.Errorf("run the attacher: %w", err)
	}
	defer d.Close()
	name, err := c.meet(ctx, d)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("run the attacher: %w", err)
	}
	log := c.Log.With("driver", name)
	work := func(ctx context.Context) error {
		ctl, err := newController(c, d, name, log)
		if err != nil {
			return err
		}
		log.Info("attaching and detaching", "strict", c.Strict)
		defer log.Info("ended")
		return ctl.run(ctx)
	}
	if c.LeaderElection == nil {
		err = work(ctx)
	} else {
		log.Info("waiting for the lease", "namespace", c.LeaderElection.Namespace)
		err = kube.Lead(ctx, c.LeaderElection.lease(name, c), work)
	}
	if err != nil {
		return fmt.Errorf("run the attacher of %s: %w", name, err)
	}
	return nil
}

// meet waits for the driver and returns its name.
func (c Config) meet(ctx context.Context, d *driver.Driver) (string, error) {
	identity, err := d.Meet(ctx, c.Timeout, func(err error) {
		c.Log.Warn("waiting for the CSI driver", "reason", err)
		c.Status.driver(err)
	})
	if err != nil {
		return "", err
	}
	if c.DriverName != "" && identity.Name != c.DriverName {
		return "", otherDriver(identity.Name, c.DriverName)
	}
	return identity.Name, nil
}

func otherDriver(is, want string) error {
	return fmt.Errorf("%w: it is called %q, want %q", ErrOtherDriver, is, want)
}
