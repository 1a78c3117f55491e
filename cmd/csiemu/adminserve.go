package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/emulator/rpc"
	"github.com/csiemu/csiemu/fault"
	"github.com/csiemu/csiemu/journal"
)

// checkAdmin refuses an address that is not to be served.
func (f *serveFlags) checkAdmin() error {
	if f.admin == "" {
		return nil
	}
	if _, err := admin.ParseAddress(f.admin); err != nil {
		return usage("read --admin: %w", err)
	}
	return nil
}

// listenAdmin opens the admin endpoint; nil if there is to be none.
func (f *serveFlags) listenAdmin(ctx context.Context) (net.Listener, error) {
	if f.admin == "" {
		return nil, nil
	}
	return admin.Listen(ctx, f.admin)
}

// openJournal has the calls written to a file, which is for its owner only, as it
// tells what others do. end closes it and says if something is missing in it.
func (f *serveFlags) openJournal(config *emulator.Config) (end func() error, err error) {
	if f.journalFile == "" {
		return func() error { return nil }, nil
	}
	file, err := os.OpenFile(f.journalFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open --journal: %w", err)
	}
	config.Journal = journal.New(journal.Options{Lines: file})
	return func() error { return errors.Join(config.Journal.Err(), file.Close()) }, nil
}

// startFault is a fault of a file.
type startFault struct {
	rule fault.Rule
	// at is where it stands, file:line.
	at string
}

// readFaults reads the faults of a file, one a line.
func readFaults(file string) ([]startFault, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("read --faults: %w", err)
	}
	var all []startFault
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := fmt.Sprintf("%s:%d", file, n)
		rule, err := fault.Parse(line)
		if err != nil {
			return nil, usage("%s: %w", at, err)
		}
		all = append(all, startFault{rule, at})
	}
	return all, nil
}

func injectAll(ctx context.Context, emu *emulator.Emulator, faults []startFault) error {
	for _, f := range faults {
		if _, err := emu.Inject(ctx, f.rule); err != nil {
			return fmt.Errorf("%s: %w", f.at, err)
		}
	}
	return nil
}

// serveAll serves CSI, and the admin endpoint if there is one, until ctx ends or
// one of them fails. It takes the listeners over.
func (f *serveFlags) serveAll(ctx context.Context, emu *emulator.Emulator, config emulator.Config, l *emulator.Listeners, adminListener net.Listener) error {
	if adminListener == nil {
		return blame(emu.ServeOn(ctx, l))
	}
	pools := maps.Clone(config.Pools)
	if len(pools) == 0 && config.Services != emulator.NodeService {
		pools = map[string]int64{emulator.DefaultPool: emulator.DefaultPoolBytes}
	}
	endpoint := admin.New(admin.Options{
		Emulator: emu, Driver: config.Profile.DriverName, Pools: pools, Log: config.Log,
		Ready: func(ctx context.Context) error { return answered(ctx, config.Endpoints(f.endpoint)) },
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	var all sync.WaitGroup
	all.Go(func() {
		defer cancel()
		failed = endpoint.Serve(ctx, adminListener)
	})
	err := blame(emu.ServeOn(ctx, l))
	cancel()
	all.Wait()
	return errors.Join(err, failed)
}

// answered checks that something listens on all sockets: somebody may have removed
// one.
func answered(ctx context.Context, endpoints []string) error {
	for _, text := range endpoints {
		e, err := rpc.ParseEndpoint(text)
		if err != nil {
			return err
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, e.Network, e.Address)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", text, err)
		}
		if err := conn.Close(); err != nil {
			return fmt.Errorf("connect to %s: %w", text, err)
		}
	}
	return nil
}
