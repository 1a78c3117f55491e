package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csiemu/csiemu/internal/role/driver"
	"github.com/csiemu/csiemu/internal/role/pause"
)

// ErrForeignCSIDriver is in the problem of a registrar whose CSIDriver object somebody
// else owns.
var ErrForeignCSIDriver = errors.New("somebody else owns the CSIDriver object")

// keeper keeps the CSIDriver object.
type keeper struct {
	c      Config
	driver *driver.Driver
	report *reporter
	// kick has a value after a CSIDriver object changed.
	kick *mailbox[struct{}]
	// id is the driver, can what it can do, nil before it was asked.
	id  identity
	can *abilities
	// writes counts those since it was quiet, written is the last one.
	writes  int
	written time.Time
	// retry is the pause after a failure, and after too many writes.
	retry pause.Doubling
}

// Two registrars that want different objects, as while a new version is rolled out,
// would undo each other's writes without end. So after freeWrites of them without
// quiet between, changes of the object are looked at after a pause only.
const (
	quiet      = time.Minute
	freeWrites = 3
)

// run keeps the object until ctx ends.
func (k *keeper) run(ctx context.Context, ids <-chan identity) (err error) {
	stop, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer func() { err = errors.Join(err, k.end(ctx)) }()
	k.retry = pause.Doubling{First: time.Second, Most: time.Minute}
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for waiting := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case id := <-ids:
			if err := k.renamed(ctx, id); err != nil {
				k.c.Log.Warn("the CSIDriver object of the former driver stays", "error", err)
			}
		case <-k.kick.c:
			if waiting {
				continue
			}
			if k.writes >= freeWrites && time.Since(k.written) < quiet {
				again.Reset(k.retry.Next())
				waiting = true
				continue
			}
		case <-again.C:
			waiting = false
		}
		if k.id.Name == "" || k.step(ctx) == nil || ctx.Err() != nil {
			continue
		}
		again.Reset(k.retry.Next())
		waiting = true
	}
}

// renamed takes a driver over, and deletes the object of the one before, if that is
// wanted at the end.
func (k *keeper) renamed(ctx context.Context, id identity) error {
	var err error
	if k.id.Name != id.Name {
		err = k.end(ctx)
	}
	k.id, k.can = id, nil
	return err
}

// step is one look at the object. Its error is what trying again may mend.
func (k *keeper) step(ctx context.Context) error {
	wrote, err := k.ensure(ctx)
	if wrote {
		k.writes, k.written = k.writes+1, time.Now()
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, ErrForeignCSIDriver):
		k.report.problem(partObject, err, func(s *State) { s.CSIDriverObject = CSIDriverForeign })
		return nil
	case err != nil:
		k.report.problem(partObject, err, func(s *State) { s.CSIDriverObject = CSIDriverFailed })
		return err
	}
	if !wrote && time.Since(k.written) >= quiet {
		k.writes = 0
		k.retry.Reset()
	}
	k.report.problem(partObject, nil, func(s *State) {
		if s.Driver == k.id.Name { // it may be another one by now
			s.CSIDriverObject = CSIDriverKept
		}
	})
	return nil
}

// ensure makes the object as it should be and reports whether it wrote.
func (k *keeper) ensure(ctx context.Context) (wrote bool, err error) {
	if k.can == nil {
		can, err := ask(ctx, k.driver, k.id)
		if err != nil {
			return false, err
		}
		k.can = &can
	}
	name, spec := k.id.Name, k.c.CSIDriver.spec(*k.can)
	client := k.c.Client.StorageV1().CSIDrivers()
	err = onConflict(ctx, func() error {
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			wrote = true
			return k.create(ctx, spec)
		case err != nil:
			return fmt.Errorf("get CSIDriver %s: %w", name, err)
		case !ours(object):
			return fmt.Errorf("keep CSIDriver %s: %w: it has no label %s=%s", name, ErrForeignCSIDriver, ManagedBy, ManagedByRegistrar)
		case sameSpec(object.Spec, spec):
			return nil
		}
		wrote = true
		if !sameImmutable(object.Spec, spec) {
			k.c.Log.Info("making the CSIDriver object anew, as fields differ that cannot be changed", "driver", name)
			if err := k.remove(ctx, object); err != nil {
				return err
			}
			return k.create(ctx, spec)
		}
		object.Spec = spec
		if _, err := client.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("update CSIDriver %s: %w", name, err)
		}
		k.c.Log.Info("restored the CSIDriver object", "driver", name)
		return nil
	})
	return wrote, err
}

func (k *keeper) create(ctx context.Context, spec storagev1.CSIDriverSpec) error {
	object := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: k.id.Name, Labels: map[string]string{ManagedBy: ManagedByRegistrar}},
		Spec:       spec,
	}
	if _, err := k.c.Client.StorageV1().CSIDrivers().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create CSIDriver %s: %w", k.id.Name, err)
	}
	k.c.Log.Info("made the CSIDriver object", "driver", k.id.Name)
	return nil
}

// remove deletes an object, but no other one of the same name and no change of it.
func (k *keeper) remove(ctx context.Context, object *storagev1.CSIDriver) error {
	only := metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}
	err := k.c.Client.StorageV1().CSIDrivers().Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &only})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete CSIDriver %s: %w", object.Name, err)
	}
	return nil
}

// end deletes the object where that is wanted.
func (k *keeper) end(ctx context.Context) error {
	if !k.c.CSIDriver.DeleteAtEnd || k.id.Name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	return onConflict(ctx, func() error {
		object, err := k.c.Client.StorageV1().CSIDrivers().Get(ctx, k.id.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("get CSIDriver %s: %w", k.id.Name, err)
		case !ours(object):
			return nil
		}
		return k.remove(ctx, object)
	})
}

func (k *keeper) watch(ctx context.Context) (stop func(), err error) {
	w := newWatches(k.c)
	watch(w, k.c.Client.StorageV1().CSIDrivers(), &storagev1.CSIDriver{}, "", nil, func() { k.kick.put(struct{}{}) })
	return w.start(ctx)
}

func ours(object *storagev1.CSIDriver) bool { return object.Labels[ManagedBy] == ManagedByRegistrar }

// sameImmutable compares what the API lets nobody change.
func sameImmutable(a, b storagev1.CSIDriverSpec) bool {
	return equality.Semantic.DeepEqual(a.AttachRequired, b.AttachRequired) && slices.Equal(a.VolumeLifecycleModes, b.VolumeLifecycleModes)
}

// sameSpec compares what is wanted with what is there. What is left out is the API
// server's to choose.
func sameSpec(there, want storagev1.CSIDriverSpec) bool {
	if want.PreventPodSchedulingIfMissing == nil {
		there.PreventPodSchedulingIfMissing = nil
	}
	if want.ServiceAccountTokenInSecrets == nil {
		there.ServiceAccountTokenInSecrets = nil
	}
	return equality.Semantic.DeepEqual(there, want)
}
