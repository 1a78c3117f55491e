package driver_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/role/driver"
)

func TestADriverIsReachedAtEachFormOfAddress(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, ready("a.example"))
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, ready("a.example"))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	for name, address := range map[string]string{
		"a path": path, "unix with two slashes": "unix://" + path, "unix with none": "unix:" + path, "tcp": "tcp://" + l.Addr().String(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := dial(t, address, driver.Options{})
			require.NoError(t, d.Await(t.Context(), nil))
			require.Empty(t, d.Name())
			id, err := d.Identity(t.Context())
			require.NoError(t, err)
			require.Equal(t, "a.example", id.Name)
			require.Equal(t, "v1", id.VendorVersion)
			require.Equal(t, "a.example", d.Name())
		})
	}
}

func TestAddressesThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ address, says string }{
		"none":             {"", "is empty"},
		"no path":          {"unix://", "has no path"},
		"another scheme":   {"http://localhost:80", "scheme is unknown"},
		"tcp without port": {"tcp://localhost", "no tcp://HOST:PORT"},
		"too long":         {"/" + strings.Repeat("x", 107), "the path has 108 bytes, a socket's has 107 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := driver.Dial(test.address, driver.Options{})
			require.ErrorContains(t, err, test.says)
		})
	}
}

func TestNamesByTheRulesOfGetPluginInfo(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"a": true, "csi.example.com": true, "CSI-2.example": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "-a": false, "a.": false, "a_b": false, "a/b": false, "../a": false, "a\n": false,
	} {
		require.Equal(t, valid, driver.CheckName(name) == nil, "%q", name)
	}
	path := socket(t)
	serve(t, path, ready("../../etc/passwd"))
	_, err := dial(t, path, driver.Options{}).Identity(t.Context())
	require.ErrorContains(t, err, "must begin and end alphanumeric")
}

func TestCapabilitiesOfADriver(t *testing.T) {
	t.Parallel()
	double := csitest.New(t, csitest.Without("GET_CAPACITY"))
	d, err := driver.Over(double.Conn(), driver.Options{})
	require.NoError(t, err)
	id, err := d.Identity(t.Context())
	require.NoError(t, err)
	require.True(t, id.Has(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE))
	require.True(t, id.Expansion.Has(csi.PluginCapability_VolumeExpansion_ONLINE))
	controller, err := d.Controller(t.Context())
	require.NoError(t, err)
	require.True(t, controller.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME))
	require.False(t, controller.Has(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY))
	node, err := d.Node(t.Context())
	require.NoError(t, err)
	require.True(t, node.Has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP))
	group, err := d.GroupController(t.Context())
	require.NoError(t, err)
	require.True(t, group.Has(csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT))
	require.False(t, group.Has(0), "UNKNOWN is no capability")
}

func TestADriverWithoutAControllerSaysSo(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, ready("a.example"))
	_, err := dial(t, path, driver.Options{}).Controller(t.Context())
	require.Equal(t, codes.Unimplemented, status.Code(err))
}

func TestALateDriverIsWaitedForAndItIsSaid(t *testing.T) {
	t.Parallel()
	path := socket(t)
	d := dial(t, path, driver.Options{})
	reasons := make(chan error, 100)
	awaited := make(chan error, 1)
	go func() { awaited <- d.Await(t.Context(), func(err error) { reasons <- err }) }()
	require.ErrorContains(t, <-reasons, "no such file")
	i := &identity{name: "a.example"}
	serve(t, path, i)
	require.ErrorIs(t, <-reasons, driver.ErrNotReady)
	i.ready.Store(true)
	require.NoError(t, <-awaited)
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := dial(t, socket(t), driver.Options{})
	err := d.Await(ctx, func(error) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "no such file", "it says what it waited for")
}

func TestADriverWithoutProbeIsReady(t *testing.T) {
	t.Parallel()
	path := socket(t)
	serve(t, path, &identity{name: "a.example", noProbe: true})
	require.NoError(t, dial(t, path, driver.Options{}).Await(t.Context(), nil))
}

func TestTheSameReasonIsToldEveryHalfMinuteOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		double := csitest.New(t, csitest.MinBackoff(-1), csitest.Faults("Probe: return(UNAVAILABLE)"))
		d, err := driver.Over(double.Conn(), driver.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
		defer cancel()
		told := 0
		require.Error(t, d.Await(ctx, func(error) { told++ }))
		require.Equal(t, 4, told, "at once, and after 30, 60 and 90 s")
	})
}

// A driver may be ready and have no name to give, as one that was built without its
// version.
func TestADriverThatDoesNotSayWhoItIsIsWaitedForTheSameWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		double := csitest.New(t, csitest.DriverName("a.example"), csitest.MinBackoff(-1), csitest.Faults("GetPluginInfo: 100*return(UNAVAILABLE)->ok"))
		d, err := driver.Over(double.Conn(), driver.Options{})
		require.NoError(t, err)
		var told []string
		id, err := d.Meet(t.Context(), time.Second, func(err error) { told = append(told, err.Error()) })
		require.NoError(t, err)
		require.Equal(t, "a.example", id.Name)
		require.Len(t, told, 2, "at once, and after 30 s")
		require.Contains(t, told[0], "ask the CSI driver for its name")
	})
}

func TestADriverThatComesBackIsNoticedAndReachedWithinASecond(t *testing.T) {
	t.Parallel()
	path := socket(t)
	stop := serve(t, path, ready("a.example"))
	d := dial(t, path, driver.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, watched := make(chan bool, 100), make(chan struct{})
	go func() {
		defer close(watched)
		d.Watch(ctx, func(connected bool) { changes <- connected })
	}()
	require.False(t, <-changes, "nothing has connected yet")
	require.True(t, <-changes, "it connects by itself")
	require.True(t, d.Connected())
	stop()
	require.False(t, <-changes)
	_, err := d.Identity(t.Context())
	require.Equal(t, codes.Unavailable, status.Code(err))

	serve(t, path, ready("b.example"))
	back := time.Now()
	select {
	case connected := <-changes:
		require.True(t, connected)
		require.Less(t, time.Since(back), 2*time.Second)
	case <-time.After(soon):
		require.Fail(t, "the driver is not noticed")
	}
	id, err := d.Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, "b.example", id.Name)
	cancel()
	<-watched
}

// direct is a connection that does not tell its state.
type direct struct{ grpc.ClientConnInterface }

func TestAConnectionThatDoesNotTellItsStateCountsAsConnected(t *testing.T) {
	t.Parallel()
	d, err := driver.Over(direct{csitest.New(t).Conn()}, driver.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var told []bool
	d.Watch(ctx, func(connected bool) { told = append(told, connected); cancel() })
	require.Equal(t, []bool{true}, told)
	require.True(t, d.Connected())
	require.NoError(t, d.Close())
}
