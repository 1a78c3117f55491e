//go:build linux

package sanity_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.Main(m, goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

// TestSanity runs csi-sanity, which nobody here wrote, against every backend
// over a unix socket. No spec is left out by us; those of RPCs that the driver
// does not advertise skip themselves.
func TestSanity(t *testing.T) {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	for name, open := range map[string]func(dir string) (backends.Backend, error){
		"loop":   func(dir string) (backends.Backend, error) { return loop.New(loop.Options{Dir: dir}) },
		"tmpfs":  func(dir string) (backends.Backend, error) { return tmpfs.New(tmpfs.Options{Dir: dir}) },
		"memory": func(string) (backends.Backend, error) { return memory.New(memory.Options{}), nil },
	} {
		for _, access := range []string{"mount", "block"} {
			ginkgo.Describe(name+" "+access, ginkgo.Ordered, func() { register(name, open, access) })
		}
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

// register adds all specs for one driver, which is served while they run.
func register(name string, open func(dir string) (backends.Backend, error), access string) {
	config := sanity.NewTestConfig()
	config.TestVolumeAccessType = access
	config.TestNodeVolumeAttachLimit = true
	config.TestVolumeMutableParameters = map[string]string{"health": "DEGRADED:Tested"}
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(sized))
	var stop func()
	ginkgo.BeforeAll(func() {
		dir, err := os.MkdirTemp("", "s")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		state := filepath.Join(dir, "state")
		gomega.Expect(os.Mkdir(state, 0o700)).To(gomega.Succeed())
		backend, err := open(state)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		profile := emulator.DefaultProfile(name)
		profile.MaxVolumesPerNode = 8
		e, err := emulator.New(context.Background(), emulator.Config{
			Backend: backend, Profile: profile, StateDir: state, Nodes: []emulator.Node{{Name: "node-1"}},
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		config.Address = "unix://" + filepath.Join(dir, "csi.sock")
		config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		listeners, err := emulator.Listen(context.Background(), config.Address)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- e.ServeOn(ctx, listeners) }()
		stop = func() {
			cancel()
			gomega.Expect(<-served).To(gomega.Succeed())
			gomega.Expect(e.Close()).To(gomega.Succeed())
			gomega.Expect(os.RemoveAll(dir)).To(gomega.Succeed())
		}
	})
	ginkgo.AfterAll(func() { stop() })
	sc := sanity.GinkgoTest(&config)
	ginkgo.AfterAll(sc.Finalize)
}

// sized makes replies equal to messages that were sent before. csi-sanity compares
// topologies with reflect.DeepEqual, which sees the size that a message remembers
// from its encoding, as one that was only received has none.
func sized(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, options...)
	if m, ok := reply.(proto.Message); ok {
		proto.Size(m)
	}
	return err
}
