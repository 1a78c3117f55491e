package attacher_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csiemu/csiemu/attacher"
	"github.com/csiemu/csiemu/csitest"
)

// wire is a connection that can be cut, and joined to another driver.
type wire struct {
	mu      sync.Mutex
	to      *grpc.ClientConn // nil: cut
	changed chan struct{}
}

func newWire(to *grpc.ClientConn) *wire { return &wire{to: to, changed: make(chan struct{})} }

func (w *wire) join(to *grpc.ClientConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = to
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *wire) end() (*grpc.ClientConn, chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to, w.changed
}

func (w *wire) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	to, _ := w.end()
	if to == nil {
		return status.Error(codes.Unavailable, "the wire is cut")
	}
	return to.Invoke(ctx, method, args, reply, opts...)
}

func (w *wire) NewStream(ctx context.Context, d *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	to, _ := w.end()
	return to.NewStream(ctx, d, method, opts...)
}

func (w *wire) GetState() connectivity.State {
	if to, _ := w.end(); to != nil {
		return connectivity.Ready
	}
	return connectivity.TransientFailure
}

func (w *wire) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	for {
		_, changed := w.end()
		if w.GetState() != from {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *wire) Connect() {}

func TestDriverThatGoesAndComesBack(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		w := newWire(f.double.Conn())
		f.config.Conn, f.config.Status = w, new(attacher.Status)
		f.start()
		require.NoError(f, f.config.Status.Ready())
		w.join(nil)
		f.server.Put(vaOf(vaName, pvName))
		f.settle()
		require.ErrorContains(f, f.config.Status.Ready(), "cannot be called")
		require.EqualValues(f, codes.Unavailable, *f.va().Status.AttachError.ErrorCode)
		f.pass(time.Hour) // deep in the back-off
		w.join(f.double.Conn())
		f.settle() // at once
		f.attached()
		require.NoError(f, f.config.Status.Ready())
	})
}

func TestDriverThatComesBackWithOtherCapabilities(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		less := csitest.New(f.T, csitest.Without("PUBLISH_UNPUBLISH_VOLUME"))
		w := newWire(less.Conn())
		f.config.Conn = w
		f.server.Put(vaOf("before", pvName))
		f.start()
		var va storagev1.VolumeAttachment
		require.True(f, f.server.Get("volumeattachments", "", "before", &va))
		require.True(f, va.Status.Attached)
		require.Empty(f, va.Finalizers)

		w.join(nil)
		f.settle()
		w.join(f.double.Conn())
		f.settle()
		f.server.Put(vaOf(vaName, pvName))
		f.settle()
		f.attached()

		// And back: what can never be detached by a call is let go.
		w.join(nil)
		f.settle()
		w.join(less.Conn())
		f.settle()
		f.server.Delete("volumeattachments", "", vaName)
		f.settle()
		require.True(f, f.gone())
	}, csitest.Lenient())
}

func TestDriverThatIsAnotherOneEndsTheWork(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		other := csitest.New(f.T, csitest.DriverName("other.example.com"))
		w := newWire(f.double.Conn())
		f.config.Conn = w
		f.start()
		w.join(nil)
		f.settle()
		w.join(other.Conn())
		require.ErrorIs(f, <-f.done, attacher.ErrOtherDriver)
		f.stop()
		f.stop = nil

		f.config.Conn, f.config.DriverName = other.Conn(), driverName
		require.ErrorIs(f, attacher.Run(f.Context(), f.config), attacher.ErrOtherDriver)
	})
}

func TestDriverThatComesLate(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		w := newWire(nil)
		f.config.Conn, f.config.Status = w, new(attacher.Status)
		f.server.Put(vaOf(vaName, pvName))
		f.start()
		f.pass(time.Hour)
		require.Error(f, f.config.Status.Ready())
		w.join(f.double.Conn())
		f.pass(time.Second)
		f.attached()
	})
}

func TestDriverThatDoesNotPublish(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(f *fixture){
		"added":         func(f *fixture) { f.start(); f.server.Put(vaOf(vaName, pvName)) },
		"there already": func(f *fixture) { f.server.Put(vaOf(vaName, pvName)); f.start() },
		"updated": func(f *fixture) {
			f.server.Put(put(vaOf(vaName, pvName), func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }))
			f.start()
			f.server.Edit("volumeattachments", "", vaName, func(va map[string]any) { va["status"] = map[string]any{"attached": false} })
		},
		"a failed write": func(f *fixture) {
			f.refuse(2, "patch volumeattachments/va/status")
			f.server.Put(vaOf(vaName, pvName))
			f.start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				test(f)
				f.server.Put(put(vaOf("foreign", pvName), func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "other.example.com" }))
				f.pass(10 * time.Second)
				require.True(f, f.va().Status.Attached)
				require.Empty(f, f.va().Finalizers)
				require.Empty(f, f.va().Annotations)
				for _, w := range f.writes() {
					require.Equal(f, "patch volumeattachments/va/status", w)
				}
				f.server.Delete("volumeattachments", "", vaName)
				f.settle()
				require.True(f, f.gone())
				f.double.Journal().Never(f, "Controller*ublishVolume")
			}, csitest.Without("PUBLISH_UNPUBLISH_VOLUME"))
		})
	}
}

func TestEndOfRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		grace    time.Duration
		attached bool
	}{
		"calls under way end first":              {grace: 20 * time.Second, attached: true},
		"and are given up if they take too long": {grace: time.Second, attached: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(f *fixture) {
				f.config.Grace = test.grace
				f.double.Inject("ControllerPublishVolume: sleep(5s)")
				f.server.Put(vaOf(vaName, pvName))
				f.start()
				f.server.Put(vaOf("late", pvName))
				f.stop()
				require.NoError(f, <-f.done)
				f.stop = nil
				require.Equal(f, test.attached, f.va().Status.Attached)
				require.Nil(f, f.va().Status.AttachError, "the end is no failure")
			}, csitest.Lenient())
		})
	}
}

func TestConfigurationsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		for want, edit := range map[string]func(*attacher.Config){
			"no Client":                 func(c *attacher.Config) { c.Client = nil },
			"neither Conn nor Endpoint": func(c *attacher.Config) { c.Conn = nil },
			"both Conn and Endpoint":    func(c *attacher.Config) { c.Endpoint = "/x" },
			"negative number":           func(c *attacher.Config) { c.Workers = -1 },
			"MaxEntries":                func(c *attacher.Config) { c.MaxEntries = -1 },
			"negative time":             func(c *attacher.Config) { c.Timeout = -1 },
			"no Namespace":              func(c *attacher.Config) { c.LeaderElection = &attacher.LeaderElection{} },
			"scheme":                    func(c *attacher.Config) { c.Conn, c.Endpoint = nil, "http://x" },
		} {
			c := f.config
			edit(&c)
			require.ErrorContains(f, attacher.Run(f.Context(), c), want)
		}
	})
}
