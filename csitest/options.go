package csitest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

// Option changes a double.
type Option func(*options)

type options struct {
	// open makes the backend in a directory; nil means memory.
	open       func(dir string, keep bool) (backends.Backend, error)
	nodes      []emulator.Node
	profile    []func(*emulator.Profile)
	config     []func(*emulator.Config)
	faults     []string
	lenient    bool
	capacity   int
	minBackoff time.Duration
	// wrong is what is wrong with the options.
	wrong []error
	// guard watches over dir from when it exists until the end.
	guard guard
}

// guard is a process that cleans up when this one is killed.
type guard interface {
	// Release ends it; Reap has it clean up now.
	Release() error
	Reap() error
}

// DriverName gives the driver a name.
func DriverName(name string) Option {
	return func(o *options) {
		o.profile = append(o.profile, func(p *emulator.Profile) { p.DriverName = name })
	}
}

// Nodes gives the driver nodes of these names in place of one called node-1.
func Nodes(names ...string) Option {
	return func(o *options) {
		o.nodes = nil
		for _, name := range names {
			o.nodes = append(o.nodes, emulator.Node{Name: name})
		}
	}
}

// Profile changes how the driver behaves: its capabilities, limits and topology.
func Profile(edit func(*emulator.Profile)) Option {
	return func(o *options) { o.profile = append(o.profile, edit) }
}

// Without takes a capability away, by its name in the specification.
func Without(capability string) Option {
	return func(o *options) {
		o.profile = append(o.profile, func(p *emulator.Profile) {
			if !p.Disable(capability) {
				o.wrong = append(o.wrong, fmt.Errorf("csitest.Without(%q): the specification has no such capability", capability))
			}
		})
	}
}

// Faults injects faults (fault.Parse) before the first call.
func Faults(rules ...string) Option {
	return func(o *options) { o.faults = append(o.faults, rules...) }
}

// Strict has the driver refuse calls that break the volume lifecycle, and any
// second call on a volume that has one under way.
func Strict() Option {
	return func(o *options) {
		o.config = append(o.config, func(c *emulator.Config) { c.Strict, c.StrictLocks = true, true })
	}
}

// Lenient lets calls that break the volume lifecycle pass: they are in the journal
// and do not fail the test.
func Lenient() Option { return func(o *options) { o.lenient = true } }

// MinBackoff is how long the code under test has to wait before it tries a call
// again; without it lifecycle.DefaultMinBackoff. A negative one lets it not wait at
// all.
func MinBackoff(d time.Duration) Option { return func(o *options) { o.minBackoff = d } }

// JournalCapacity is how many calls are kept; without it
// journal.DefaultCapacity.
func JournalCapacity(calls int) Option { return func(o *options) { o.capacity = calls } }

// Config changes the configuration of the emulator in any other way.
func Config(edit func(*emulator.Config)) Option {
	return func(o *options) { o.config = append(o.config, edit) }
}

// config puts the options together.
func (d *Double) config() (emulator.Config, error) {
	c := emulator.Config{
		CheckCaller: true, Nodes: d.o.nodes, Journal: journal.New(journal.Options{Capacity: d.o.capacity}), MinBackoff: d.o.minBackoff,
		Crash: func(step string) {
			d.tb.Errorf("the fault crash came to %s: it would end the process of the test; use partial(%s), or csiemu serve in a process of its own", step, step)
		},
	}
	if len(c.Nodes) == 0 {
		c.Nodes = []emulator.Node{{Name: "node-1"}}
	}
	backend, err := d.backend(&c)
	if err != nil {
		return c, err
	}
	c.Backend, c.Profile = backend, emulator.DefaultProfile(backend.Name())
	for _, edit := range d.o.profile {
		edit(c.Profile)
	}
	for _, edit := range d.o.config {
		edit(&c)
	}
	if err := errors.Join(d.o.wrong...); err != nil {
		return c, errors.Join(err, backend.Close())
	}
	return c, nil
}

func (d *Double) backend(c *emulator.Config) (backends.Backend, error) {
	if d.o.open == nil {
		return memory.New(memory.Options{}), nil
	}
	if inBubble() {
		return nil, errors.New("real volumes and a bubble of testing/synctest do not go together: the kernel does not share its clock")
	}
	dir, err := d.dir()
	if err != nil {
		return nil, err
	}
	if c.StateDir, err = makeStore(dir); err != nil {
		return nil, err
	}
	if !*keep {
		if d.o.guard, err = watch(dir); err != nil {
			return nil, err
		}
	}
	return d.o.open(c.StateDir, *keep)
}

// injectAll injects the faults of the options.
func (d *Double) injectAll(ctx context.Context) error {
	for _, rule := range d.o.faults {
		if _, err := d.emulator.InjectText(ctx, rule); err != nil {
			return err
		}
	}
	return nil
}
