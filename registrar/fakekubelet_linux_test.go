package registrar_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kubelet is the kubelet's side of registration, as Kubernetes 1.37 has it: a watch of
// the directory, a loop that unregisters and registers, a back-off for each path.
type kubelet struct {
	t   *testing.T
	dir string
	// refuse, if set, is a registration handler that fails.
	refuse func(*registerapi.PluginInfo) error
	// said gets what happened, as in "registered a.example".
	said chan string

	mu sync.Mutex
	// desired are sockets that are there, with a number for each time that they
	// came; actual are those that are registered.
	desired map[string]int
	actual  map[string]plugin
	number  int
	tries   map[string]try
}

type plugin struct {
	number   int
	name, id string
	info     *registerapi.PluginInfo
}

type try struct {
	pause time.Duration
	next  time.Time
}

// The kubelet's own times are 1 s, 500 ms and 2 min 2 s.
const (
	kubeletLoop       = 50 * time.Millisecond
	kubeletFirstRetry = 100 * time.Millisecond
	kubeletLastRetry  = 122 * time.Second
)

// startKubelet starts one that ends with the test, or before by stop.
func startKubelet(t *testing.T, dir string, refuse func(*registerapi.PluginInfo) error) (k *kubelet, stop func()) {
	t.Helper()
	k = &kubelet{
		t: t, dir: dir, refuse: refuse, said: make(chan string, 1000),
		desired: map[string]int{}, actual: map[string]plugin{}, tries: map[string]try{},
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE)
	require.NoError(t, err)
	events := os.NewFile(uintptr(fd), "inotify")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		k.came(e.Name())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { k.watch(events) })
	running.Go(func() { k.loop(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		_ = events.Close()
		running.Wait()
	})
	t.Cleanup(stop)
	return k, stop
}

func (k *kubelet) watch(events *os.File) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := events.Read(buffer)
		if err != nil {
			return
		}
		for left := buffer[:n]; len(left) >= unix.SizeofInotifyEvent; {
			mask := uint32(left[4]) | uint32(left[5])<<8 | uint32(left[6])<<16 | uint32(left[7])<<24
			length := int(left[12]) | int(left[13])<<8
			name := strings.TrimRight(string(left[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
			left = left[unix.SizeofInotifyEvent+length:]
			if mask&unix.IN_DELETE != 0 {
				k.mu.Lock()
				delete(k.desired, name)
				k.mu.Unlock()
			} else {
				k.came(name)
			}
		}
	}
}

func (k *kubelet) came(name string) {
	info, err := os.Lstat(filepath.Join(k.dir, name))
	if err != nil || strings.HasPrefix(name, ".") || info.Mode().Type() != fs.ModeSocket {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	k.desired[name] = k.number
}

func (k *kubelet) loop(ctx context.Context) {
	again := time.NewTicker(kubeletLoop)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		k.mu.Lock()
		desired := maps.Clone(k.desired)
		for path, p := range k.actual {
			if desired[path] != p.number {
				delete(k.actual, path)
				k.said <- "deregistered " + p.name
			}
		}
		var missing []string
		for _, path := range slices.Sorted(maps.Keys(desired)) {
			if _, has := k.actual[path]; !has && time.Now().After(k.tries[path].next) {
				missing = append(missing, path)
			}
		}
		k.mu.Unlock()
		for _, path := range missing {
			k.try(ctx, path, desired[path])
		}
	}
}

// try registers a socket.
func (k *kubelet) try(ctx context.Context, path string, number int) {
	p, err := k.register(ctx, filepath.Join(k.dir, path), number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.actual[path] = p
		delete(k.tries, path)
		k.said <- "registered " + p.name + " as " + p.id
		return
	}
	pause := min(max(kubeletFirstRetry, 2*k.tries[path].pause), kubeletLastRetry)
	k.tries[path] = try{pause, time.Now().Add(pause)}
	k.said <- "failed " + path + ": " + err.Error()
}

func connect(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// register is one attempt, with the kubelet's deadlines.
func (k *kubelet) register(ctx context.Context, path string, number int) (plugin, error) {
	conn, err := connect(path)
	if err != nil {
		return plugin{}, err
	}
	defer func() { _ = conn.Close() }()
	client := registerapi.NewRegistrationClient(conn)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := client.GetInfo(short, &registerapi.InfoRequest{})
	if err != nil {
		return plugin{}, fmt.Errorf("GetInfo: %w", err)
	}
	p := plugin{number: number, name: info.GetName(), info: info}
	if p.id, err = k.install(ctx, info); err != nil {
		_, _ = client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{
			Error: "RegisterPlugin error -- plugin registration failed with err: " + err.Error(),
		})
		return p, err
	}
	_, err = client.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: true})
	return p, err
}

// install is the CSI registration handler.
func (k *kubelet) install(ctx context.Context, info *registerapi.PluginInfo) (id string, err error) {
	if info.GetType() != registerapi.CSIPlugin || !slices.Equal(info.GetSupportedVersions(), []string{"1.0.0"}) {
		return "", fmt.Errorf("type %q, versions %q", info.GetType(), info.GetSupportedVersions())
	}
	k.mu.Lock()
	for _, other := range k.actual {
		if other.name == info.GetName() {
			err = errors.New("Another driver with the same name is already registered with a higher supported version")
		}
	}
	k.mu.Unlock()
	if err == nil && k.refuse != nil {
		err = k.refuse(info)
	}
	if err != nil || info.GetEndpoint() == "" {
		return "", errors.Join(err, errors.New("no endpoint"))
	}
	conn, err := connect(info.GetEndpoint())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	node, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err == nil && node.GetNodeId() == "" {
		err = errors.New("error updating CSI node info: node ID is empty")
	}
	return node.GetNodeId(), err
}

// want waits for what the kubelet says, over what it says before.
func (k *kubelet) want(t *testing.T, what string) {
	t.Helper()
	late := time.After(soon)
	var before []string
	for {
		select {
		case said := <-k.said:
			if strings.HasPrefix(said, what) {
				return
			}
			before = append(before, said)
		case <-late:
			require.Failf(t, "the kubelet does not say it", "%q; it said %q", what, before)
		}
	}
}
