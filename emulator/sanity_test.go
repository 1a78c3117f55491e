//go:build linux

package emulator_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// TestSanity runs csi-sanity, which nobody here wrote, against every backend
// over a unix socket. No spec is left out by us; those of RPCs that the driver
// does not advertise skip themselves.
func TestSanity(t *testing.T) {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.Tmpfs)
	for _, b := range backendCases() {
		for _, access := range []string{"mount", "block"} {
			ginkgo.Describe(b.name+" "+access, ginkgo.Ordered, func() { sanityOf(t, b, access) })
		}
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct = true
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

func sanityOf(t *testing.T, b backendCase, access string) {
	config := sanity.NewTestConfig()
	config.TestVolumeAccessType = access
	config.TestNodeVolumeAttachLimit = true
	var stop func()
	ginkgo.BeforeAll(func() {
		dir, err := os.MkdirTemp("", "s")
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		profile := emulator.DefaultProfile(b.name)
		profile.MaxVolumesPerNode = 8
		e, err := emulator.New(context.Background(), emulator.Config{
			Backend: b.open(t, dir), Profile: profile, StateDir: dir, Nodes: []emulator.Node{{Name: "node-1"}},
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		config.Address = "unix://" + filepath.Join(dir, "csi.sock")
		config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, config.Address) }()
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
