package registrar_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/registrar"
)

func TestADriverIsRegisteredAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	double := csitest.New(t)
	c := p.config()
	c.CSIAddress, c.KubeletRegistrationPath = double.Endpoint(), double.Endpoint()[len("unix://"):]
	k, _ := startKubelet(t, p.registry, nil)
	r := start(t, c)
	k.want(t, "registered memory.csiemu.dev as node-1")
	s := r.want(t, "registered", registered)
	require.Equal(t, "memory.csiemu.dev", s.Driver)
	require.Equal(t, p.socket("memory.csiemu.dev"), s.Socket)
	require.False(t, s.LastGetInfo.IsZero())
	require.False(t, s.LastNotify.Before(s.LastGetInfo))
	require.Empty(t, s.Problem)
	require.Equal(t, 1, s.Offers)

	info, err := os.Lstat(s.Socket)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode())
	require.Equal(t, []string{"memory.csiemu.dev-reg.sock"}, p.entries(t))
	k.mu.Lock()
	require.Equal(t, c.KubeletRegistrationPath, k.actual["memory.csiemu.dev-reg.sock"].info.GetEndpoint(), "the driver's socket, verbatim")
	k.mu.Unlock()

	require.NoError(t, r.end())
	require.Empty(t, p.entries(t))
	k.want(t, "deregistered memory.csiemu.dev")
}

func TestTheUmaskOfTheProcessIsLeftAlone(t *testing.T) { // not parallel: it is one for the process
	before := unix.Umask(0)
	defer unix.Umask(before)
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	r := start(t, p.config())
	s := r.want(t, "offered", func(s registrar.State) bool { return s.Offers > 0 })
	now := unix.Umask(0)
	require.Zero(t, now)
	info, err := os.Lstat(s.Socket)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode(), "whatever the umask is")
	require.NoError(t, r.end())
}

// A registrar that is killed leaves its socket: kubernetes-csi/node-driver-registrar
// 21, 83 and 206.
func TestTheSocketOfARegistrarThatWasKilledIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	double := csitest.New(t)
	serveDriver(t, p.driver, double)
	deadSocket(t, p.socket("memory.csiemu.dev"))
	left := filepath.Join(p.registry, ".csiemu-registrar-123")
	require.NoError(t, os.Mkdir(left, 0o700))
	deadSocket(t, filepath.Join(left, ".s"))
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(left, long, long))
	fresh := filepath.Join(p.registry, ".csiemu-registrar-456")
	require.NoError(t, os.Mkdir(fresh, 0o700))

	k, _ := startKubelet(t, p.registry, nil)
	k.want(t, "failed memory.csiemu.dev-reg.sock")
	r := start(t, p.config())
	k.want(t, "registered memory.csiemu.dev")
	r.want(t, "registered", registered)
	require.Equal(t, []string{".csiemu-registrar-456", "memory.csiemu.dev-reg.sock"}, p.entries(t),
		"what a killed one left goes, but not what another one may be making")
	require.NoError(t, r.end())
	require.NoError(t, os.Remove(fresh))
	require.Empty(t, p.entries(t))
}

// deadSocket makes a socket on which nobody listens.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func TestWhatIsNoSocketIsRefusedAndKept(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"a file":                   func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a directory":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a link, even to a socket": func(path string) error { return os.Symlink("../csi.sock", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			serveDriver(t, p.driver, csitest.New(t))
			require.NoError(t, make(p.socket("memory.csiemu.dev")))
			err := registrar.Run(t.Context(), p.config())
			require.ErrorIs(t, err, registrar.ErrNotSocket)
			require.ErrorContains(t, err, p.socket("memory.csiemu.dev"))
			require.ErrorContains(t, err, "remove it")
			require.Equal(t, []string{"memory.csiemu.dev-reg.sock"}, p.entries(t))
		})
	}
}

// kubernetes-csi/node-driver-registrar 57: the socket is not there any more while the
// registrar runs.
func TestASocketThatSomebodyRemovesIsPutBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	k, _ := startKubelet(t, p.registry, nil)
	r := start(t, p.config())
	r.want(t, "registered", registered)
	require.NoError(t, os.Remove(p.socket("memory.csiemu.dev")))
	r.want(t, "not registered", func(s registrar.State) bool { return !s.Registered && s.LastError != "" })
	s := r.want(t, "registered again", registered)
	require.Equal(t, 2, s.Offers)
	require.Contains(t, s.LastError, "somebody removed the registration socket")
	k.want(t, "registered")
	k.want(t, "registered")
	require.NoError(t, r.end())
	require.Empty(t, p.entries(t))
}

func TestADirectoryThatGoesAndComesIsUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	require.NoError(t, os.Remove(p.registry))
	serveDriver(t, p.driver, csitest.New(t))
	r := start(t, p.config())
	r.problem(t, "no such file or directory")
	for range 2 {
		require.NoError(t, os.Mkdir(p.registry, 0o750))
		s := r.want(t, "offered", func(s registrar.State) bool { return s.Socket != "" })
		require.Empty(t, s.Problem)
		require.NoError(t, os.RemoveAll(p.registry))
		r.want(t, "lost", func(s registrar.State) bool { return s.Socket == "" })
	}
	require.NoError(t, r.end())
}

// kubernetes-csi/node-driver-registrar 36: the driver is not there at the start.
func TestALateDriverIsWaitedForAndItIsSaid(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	k, _ := startKubelet(t, p.registry, nil)
	r := start(t, p.config())
	s := r.problem(t, "wait for the driver")
	require.False(t, s.DriverReachable)
	require.Empty(t, p.entries(t), "nothing is offered that is not there")
	serveDriver(t, p.driver, csitest.New(t))
	began := time.Now()
	s = r.want(t, "registered", registered)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Empty(t, s.Problem)
	k.want(t, "registered memory.csiemu.dev")
}

// kubernetes/kubernetes 118317: a registration that failed once was never tried again.
func TestARefusedRegistrationIsTriedAgainAndShown(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	var refusals atomic.Int32
	refusals.Store(4)
	k, _ := startKubelet(t, p.registry, func(*registerapi.PluginInfo) error {
		if refusals.Add(-1) >= 0 {
			return errors.New("not today")
		}
		return nil
	})
	r := start(t, p.config())
	s := r.problem(t, "the kubelet refused driver memory.csiemu.dev: RegisterPlugin error -- plugin registration failed with err: not today")
	require.False(t, s.Registered)
	s = r.want(t, "registered", registered)
	require.Empty(t, s.Problem)
	require.Contains(t, s.LastError, "not today", "it is still known")
	k.want(t, "registered")
}

// A kubelet before 1.37 does not try a refused socket again: only one that comes.
func TestARefusedDriverIsOfferedAnew(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	r := start(t, p.config())
	s := r.want(t, "offered", func(s registrar.State) bool { return s.Offers == 1 })
	before, err := os.Lstat(s.Socket)
	require.NoError(t, err)
	conn, err := connect(s.Socket)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = registerapi.NewRegistrationClient(conn).NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no"})
	require.NoError(t, err)
	r.problem(t, "the kubelet refused driver memory.csiemu.dev: no")
	s = r.want(t, "offered again", func(s registrar.State) bool { return s.Offers == 2 })
	require.Contains(t, s.Problem, "no", "until the kubelet says something else")
	after, err := os.Lstat(s.Socket)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
}

// kubernetes-csi/node-driver-registrar 139: "Lost connection", and nothing is done.
func TestADriverThatComesBackAsAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		with []csitest.Option
		said []string
	}{
		"by name": {[]csitest.Option{csitest.DriverName("b.example")}, []string{"deregistered a.example", "registered b.example as node-1"}},
		"by node": {[]csitest.Option{csitest.DriverName("a.example"), csitest.Nodes("node-2")}, []string{"deregistered a.example", "registered a.example as node-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			stop := serveDriver(t, p.driver, csitest.New(t, csitest.DriverName("a.example")))
			k, _ := startKubelet(t, p.registry, nil)
			r := start(t, p.config())
			k.want(t, "registered a.example as node-1")
			r.want(t, "registered", func(s registrar.State) bool { return s.Registered && s.NodeID == "node-1" })
			stop()
			r.problem(t, "lost the connection")
			serveDriver(t, p.driver, csitest.New(t, test.with...))
			for _, said := range test.said {
				k.want(t, said)
			}
			r.want(t, "registered again", func(s registrar.State) bool { return s.Registered && s.Offers == 2 && s.Problem == "" })
			require.Len(t, p.entries(t), 1)
		})
	}
}

// NetApp/trident 487, longhorn 9424: a socket that is taken away while the driver is
// replaced deregisters it, and volumes cannot be unmounted.
func TestADriverThatIsAwayStaysRegistered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	double := csitest.New(t)
	stop := serveDriver(t, p.driver, double)
	k, _ := startKubelet(t, p.registry, nil)
	r := start(t, p.config())
	r.want(t, "registered", func(s registrar.State) bool { return s.Registered && s.NodeID != "" })
	k.want(t, "registered")
	stop()
	s := r.problem(t, "lost the connection to the driver")
	require.True(t, s.Registered)
	require.False(t, s.DriverReachable)
	serveDriver(t, p.driver, double)
	s = r.want(t, "back", func(s registrar.State) bool { return s.DriverReachable })
	require.True(t, s.Registered)
	require.NoError(t, r.end())
	k.want(t, "deregistered")
	require.Empty(t, k.said, "nothing was said between")
}

func TestAKubeletThatStartsAgainFindsTheDriver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	k, stop := startKubelet(t, p.registry, nil)
	r := start(t, p.config())
	first := r.want(t, "registered", registered)
	k.want(t, "registered")
	stop()
	k, _ = startKubelet(t, p.registry, nil)
	k.want(t, "registered memory.csiemu.dev")
	s := r.want(t, "asked again", func(s registrar.State) bool { return s.LastNotify.After(first.LastNotify) })
	require.True(t, s.Registered)
	require.Equal(t, 1, s.Offers)
}

// Two registrars of one driver, as while a new version of a pod is rolled out: the
// newer one has the place, and none fights for it.
func TestTwoRegistrarsOfOneDriverDoNotFight(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	serveDriver(t, p.driver, csitest.New(t))
	k, _ := startKubelet(t, p.registry, nil)
	older := start(t, p.config())
	older.want(t, "registered", registered)
	newer := start(t, p.config())
	s := older.problem(t, "another registrar offers driver memory.csiemu.dev")
	require.True(t, s.StandingBy)
	newer.want(t, "registered", registered)
	require.NoError(t, newer.end())
	s = older.want(t, "registered again", registered)
	require.False(t, s.StandingBy)
	require.Equal(t, 2, s.Offers)
	k.want(t, "registered")

	newer = start(t, p.config())
	older.want(t, "standing by", func(s registrar.State) bool { return s.StandingBy })
	newer.want(t, "registered", registered)
	require.NoError(t, older.end())
	require.Equal(t, []string{"memory.csiemu.dev-reg.sock"}, p.entries(t), "the older one leaves the newer one's socket")
	require.NoError(t, newer.end())
	require.Empty(t, p.entries(t))
}

func TestADriverWithoutANodeServiceIsOffered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	double := csitest.New(t, csitest.MinBackoff(-1), csitest.Faults("NodeGetInfo: return(INTERNAL)"))
	serveDriver(t, p.driver, double)
	k, _ := startKubelet(t, p.registry, nil)
	r := start(t, p.config())
	k.want(t, "failed")
	s := r.problem(t, "the kubelet refused driver")
	require.Contains(t, s.Problem, "Internal", "it is the kubelet that says so")
}
