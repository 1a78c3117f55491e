// Package registrar makes a CSI driver known: to a kubelet, as node-driver-registrar
// does, or, where there is no kubelet, to the API server itself.
//
// Towards a kubelet it offers a registration socket (pluginregistration v1) and keeps
// it offered: it puts the socket back when somebody removes it, offers it anew when
// the kubelet refuses it or the driver comes back as another, and takes it away at
// the end. In direct mode it writes what a kubelet would have written, the CSINode
// entry and the Node's annotation and labels, and keeps and takes back those. It can
// also keep the driver's CSIDriver object.
//
// It works with any driver, which may come late, go away and come back.
package registrar

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/endpoint"
)

// Run registers a driver until ctx ends, and takes the registration back then. It
// returns nil after that, or an error that says what was left. Before that it
// returns only for what waiting cannot mend: a wrong Config (ErrConfig), a file in
// the place of the socket (ErrNotSocket), an HTTP endpoint that cannot be opened. A
// driver, a kubelet or an API server that is missing is waited for without limit;
// State tells what for.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	c = c.withDefaults()
	d, err := driver.Connect(c.Conn, c.CSIAddress, driver.Options{Log: c.Log, Metrics: c.Metrics})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	report := newReporter(c)
	if err := report.register(c.Metrics); err != nil {
		return err
	}

	var server *endpoint.Server
	if c.HTTPEndpoint != "" {
		if server, err = endpoint.Listen(ctx, report.endpoint()); err != nil {
			return fmt.Errorf("run the registrar: %w", err)
		}
		c.Log.Info("serving HTTP", "address", server.Addr().String())
	}

	group, ctx := errgroup.WithContext(ctx)
	f := &follower{c: c, driver: d, report: report, again: make(chan struct{}, 1)}
	if server != nil {
		group.Go(func() error { return server.Serve(ctx) })
	}
	if c.CSIDriver != nil {
		f.named = newMailbox[identity]()
		k := &keeper{c: c, driver: d, report: report, kick: newMailbox[struct{}]()}
		group.Go(func() error { return k.run(ctx, f.named.c) })
	}
	if c.Direct != nil {
		f.nodes = newMailbox[identity]()
		n := &direct{c: c, driver: d, report: report, kick: newMailbox[struct{}]()}
		group.Go(func() error { return n.run(ctx, f.nodes.c) })
	} else {
		f.offers = newMailbox[identity]()
		k := &kubelet{c: c, report: report, events: make(chan event, 16)}
		group.Go(func() error { return k.run(ctx, f.offers.c) })
	}
	group.Go(func() error { return f.watch(ctx) })
	group.Go(func() error { return f.run(ctx) })
	return group.Wait()
}
