package csitest

import (
	"context"

	"github.com/csiemu/csiemu/emulator"
)

// Inject adds a fault (fault.Parse), active in every call that begins from now on,
// and returns its id. One that cannot be fails the test.
func (d *Double) Inject(rule string) (id string) {
	d.tb.Helper()
	id, err := d.emulator.InjectText(context.Background(), rule)
	if err != nil {
		d.tb.Fatalf("%v", err)
	}
	return id
}

// Release removes a fault, lets go of the calls that hang on it and heals the
// volumes that suffer from it.
func (d *Double) Release(id string) {
	d.tb.Helper()
	if err := d.emulator.RemoveFault(context.Background(), id); err != nil {
		d.tb.Fatalf("%v", err)
	}
}

// Volumes are all volumes, oldest first, seen from behind: no call is made.
func (d *Double) Volumes() []emulator.Volume {
	d.tb.Helper()
	all, err := d.emulator.Volumes(context.Background())
	if err != nil {
		d.tb.Fatalf("%v", err)
	}
	return all
}

// Snapshots are all snapshots, oldest first, seen from behind.
func (d *Double) Snapshots() []emulator.Snapshot {
	return d.emulator.Snapshots()
}

// Attachments are all attachments, seen from behind.
func (d *Double) Attachments() []emulator.Attachment {
	return d.emulator.Attachments()
}

// Mounts are the staging paths and targets on all nodes, seen from behind.
func (d *Double) Mounts() []emulator.Mount { return d.emulator.Mounts() }

// Volume is one volume, to be broken. It need not exist yet.
type Volume struct {
	double *Double
	id     string
	path   string
}

// Volume returns the volume with an id.
func (d *Double) Volume(id string) *Volume { return &Volume{double: d, id: id} }

// Get is the volume seen from behind; one that does not exist fails the test.
func (v *Volume) Get() emulator.Volume {
	v.double.tb.Helper()
	view, err := v.double.emulator.Volume(context.Background(), v.id)
	if err != nil {
		v.double.tb.Fatalf("%v", err)
	}
	return view
}

// Fail breaks the bytes of the volume under its users. A volume needs the parameter
// breakable=true (Spec.Breakable) for it; a plain one of Loop can only fail all of its
// I/O (eio), one of Tmpfs that is a file system nothing. The actions are eio, eio(writes),
// readonly, slow(50ms), gone, corrupt(0,4096), health(DEGRADED,"SlowDisk"). What
// the volume cannot do fails the test with the reason.
func (v *Volume) Fail(action string) {
	v.double.tb.Helper()
	v.double.Inject(`Volume{volume="` + v.id + `"}: ` + action)
}

// Fill leaves no space behind a part of the volume, such as "95%".
func (v *Volume) Fill(level string) {
	v.double.tb.Helper()
	v.Fail("full(" + level + ")")
}

// Heal ends what Fail and Fill did. A device that is gone stays gone until the volume
// is detached and attached again; a file system that met an error until it is staged
// again.
func (v *Volume) Heal() {
	v.double.tb.Helper()
	v.Fail("heal")
}
