package registrar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csiemu/csiemu/internal/role/dirwatch"
	"github.com/csiemu/csiemu/internal/role/pause"
)

const (
	// lookEvery is how often the socket is looked at where the directory cannot be
	// watched, and in case it was replaced itself.
	lookEvery = time.Second
	// offerPause is the least time between two offers, and the first pause after a
	// refused one.
	offerPause = time.Second
	// longestPause is the longest pause after refusals in a row. The kubelet itself
	// waits up to 2 min 2 s for a socket that failed.
	longestPause = 2 * time.Minute
	// silence is how long the kubelet may take to ask, and from there to say how it
	// ended, before the socket is offered anew: it gives NodeGetInfo two minutes.
	silence = 3 * time.Minute
)

// kubelet keeps the driver registered with a kubelet. All of it but tell is used by
// the goroutine of run.
type kubelet struct {
	c      Config
	report *reporter
	events chan event
	done   <-chan struct{}

	// id is the driver that is to be offered; its Name is "" before there is one.
	id identity
	// offer is the socket in place; nil if there is none.
	offer  *offer
	number int
	last   time.Time
	// refused doubles from one refusal to the next, failed from one offer that could
	// not be made to the next, yielded while somebody else's socket is in place.
	refused, failed, yielded pause.Doubling
	// wake is when to offer anew; foreign when to look at somebody else's socket.
	wake    *time.Timer
	foreign time.Time
}

// run offers the driver until ctx ends.
func (k *kubelet) run(ctx context.Context, ids <-chan identity) (err error) {
	k.done = ctx.Done()
	k.refused = pause.Doubling{First: offerPause, Most: longestPause}
	k.failed = pause.Doubling{First: offerPause, Most: 5 * time.Second}
	k.yielded = pause.Doubling{First: lookEvery, Most: 30 * time.Second}
	k.wake = time.NewTimer(silence)
	k.wake.Stop()
	defer k.wake.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	defer func() { err = errors.Join(err, k.withdraw()) }()

	changed := k.watch(ctx)
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case id := <-ids:
			err = k.identified(ctx, id)
		case e := <-k.events:
			k.heard(e)
		case _, open := <-changed:
			if !open {
				changed = nil
			}
			err = k.look(ctx)
		case <-look.C:
			if changed == nil {
				changed = k.watch(ctx)
			}
			err = k.look(ctx)
		case <-k.wake.C:
			err = k.put(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// watch watches the directory; nil if that cannot be, now or at all: then there are
// looks only.
func (k *kubelet) watch(ctx context.Context) <-chan struct{} {
	changed, err := dirwatch.Watch(ctx, k.c.PluginRegistrationPath)
	if err != nil {
		return nil
	}
	return changed
}

// path is where the socket of the driver belongs, as node-driver-registrar names it.
func (k *kubelet) path() string {
	return filepath.Join(k.c.PluginRegistrationPath, k.id.Name+"-reg.sock")
}

// identified offers the driver if it is another than before.
func (k *kubelet) identified(ctx context.Context, id identity) error {
	was := k.id
	if id.node == nil && id.Name == was.Name {
		id.node = was.node
	}
	k.id = id
	switch {
	case was.Name == "":
	case was.Name != id.Name:
		k.c.Log.Info("the driver came back with another name", "before", was.Name, "driver", id.Name)
		if err := k.withdraw(); err != nil {
			k.c.Log.Warn("the socket of the former driver stays", "error", err)
		}
	case !was.sameNode(id):
		k.c.Log.Info("the driver came back as another node", "driver", id.Name, "before", was.node.GetNodeId(), "node_id", id.node.GetNodeId())
	default:
		return nil
	}
	k.refused.Reset()
	return k.put(ctx)
}

// put offers the driver. Only what is no socket is an error, everything else is tried
// again.
func (k *kubelet) put(ctx context.Context) error {
	k.number++
	number := k.number
	service := &service{
		info: &registerapi.PluginInfo{
			Type: registerapi.CSIPlugin, Name: k.id.Name,
			Endpoint: k.c.KubeletRegistrationPath, SupportedVersions: supportedVersions(),
		},
		tell: func(status *registerapi.RegistrationStatus) { k.tell(event{number, status}) },
	}
	made, err := put(ctx, k.path(), service)
	if err != nil {
		if errors.Is(err, ErrNotSocket) {
			return err
		}
		k.report.problem(partRegistration, err, func(s *State) { s.Registered = false })
		k.wake.Reset(k.failed.Next())
		return nil
	}
	made.number = number
	if before := k.offer; before != nil {
		before.end()
	}
	k.offer, k.last = made, time.Now()
	k.failed.Reset()
	k.wake.Reset(silence)
	k.c.Log.Info("offered the driver to the kubelet", "driver", k.id.Name, "socket", made.path, "endpoint", k.c.KubeletRegistrationPath)
	change := func(s *State) {
		s.Socket, s.Registered, s.StandingBy = made.path, false, false
		s.Offers++
	}
	if k.refused.Begun() {
		k.report.update(change) // what the kubelet said last is still the problem
	} else {
		k.report.problem(partRegistration, nil, change)
	}
	return nil
}

// tell hands what the kubelet said to run.
func (k *kubelet) tell(e event) {
	select {
	case k.events <- e:
	case <-k.done:
	}
}

// heard is told what the kubelet said.
func (k *kubelet) heard(e event) {
	if k.offer == nil || e.offer != k.offer.number {
		return
	}
	switch now := time.Now(); {
	case e.status == nil:
		k.report.update(func(s *State) { s.LastGetInfo = now })
		if !k.report.now().Registered {
			k.wake.Reset(silence)
		}
	case e.status.GetPluginRegistered():
		k.refused.Reset()
		k.wake.Stop()
		k.report.problem(partRegistration, nil, func(s *State) { s.Registered, s.LastNotify = true, now })
		k.c.Log.Info("the kubelet registered the driver", "driver", k.id.Name)
	default:
		next := k.refused.Next()
		k.wake.Reset(next)
		k.report.problem(partRegistration, fmt.Errorf("the kubelet refused driver %s: %s", k.id.Name, cmp.Or(e.status.GetError(), "without a reason")),
			func(s *State) { s.Registered, s.LastNotify = false, now })
		k.c.Log.Info("offering the driver again", "driver", k.id.Name, "in", next)
	}
}

// look sees to it that the socket is in place.
func (k *kubelet) look(ctx context.Context) error {
	if k.offer == nil {
		return nil
	}
	ours, other, err := k.offer.inPlace()
	switch {
	case errors.Is(err, ErrNotSocket):
		return fmt.Errorf("keep registration socket %s: %w", k.offer.path, err)
	case err != nil:
		k.report.problem(partRegistration, fmt.Errorf("look at registration socket %s: %w", k.offer.path, err), nil)
		return nil
	case ours && k.offer.ended():
		return k.lost(ctx, "the server behind the registration socket ended")
	case ours:
		return nil
	case other == nil:
		return k.lost(ctx, "somebody removed the registration socket")
	case time.Now().Before(k.foreign):
		return nil
	case answers(ctx, k.offer.path):
		// To take the place back would only begin a fight, as the other one may
		// be the next version of this pod.
		k.foreign = time.Now().Add(k.yielded.Next())
		k.wake.Stop()
		k.report.problem(partRegistration, fmt.Errorf("another registrar offers driver %s at %s: waiting until it ends", k.id.Name, k.offer.path),
			func(s *State) { s.Socket, s.Registered, s.StandingBy = "", false, true })
		return nil
	}
	return k.lost(ctx, "somebody replaced the registration socket by a dead one")
}

// lost offers the driver anew, at most once a second.
func (k *kubelet) lost(ctx context.Context, why string) error {
	k.yielded.Reset()
	k.foreign = time.Time{}
	if k.failed.Begun() {
		return nil // wake tries again
	}
	if left := offerPause - time.Since(k.last); left > 0 {
		k.report.problem(partRegistration, errors.New(why), func(s *State) { s.Socket, s.Registered = "", false })
		k.wake.Reset(left)
		return nil
	}
	k.c.Log.Warn("offering the driver again", "driver", k.id.Name, "why", why)
	k.report.problem(partRegistration, errors.New(why), func(s *State) { s.Socket, s.Registered = "", false })
	return k.put(ctx)
}

// withdraw takes the socket away.
func (k *kubelet) withdraw() error {
	if k.offer == nil {
		return nil
	}
	err := k.offer.withdraw()
	k.offer = nil
	k.wake.Stop()
	k.report.problem(partRegistration, nil, func(s *State) { s.Socket, s.Registered = "", false })
	return err
}
