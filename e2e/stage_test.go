package e2e_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/e2e/control"
	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/e2e/programs"
	"github.com/csiemu/csiemu/journal"
	"github.com/csiemu/csiemu/lifecycle"
)

const (
	gib = 1 << 30
	// shortest is half of the wait with which the sidecars begin to back off. What
	// comes earlier did not back off.
	shortest = 500 * time.Millisecond
	tooSoon  = string(lifecycle.RetryTooSoon)
)

// stage is where a situation takes place: a double, a sidecar that calls it, and a
// name of its own in the API of all.
type stage struct {
	*testing.T
	ctx    context.Context
	double *csitest.Double
	client kubernetes.Interface
	// name is that of its objects; driver that of the double.
	name, driver string
}

// play has the situation take place and returns its row of the table.
func (s situation) play(t *testing.T, plane *control.Plane) string {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	sum := fnv.New32a()
	fmt.Fprint(sum, s.caller, s.name)
	name := fmt.Sprintf("s%08x", sum.Sum32())
	st := &stage{T: t, ctx: ctx, client: plane.Client, name: name, driver: name + ".e2e.csiemu.dev"}
	options := []csitest.Option{csitest.DriverName(st.driver), csitest.Faults(s.faults...), csitest.MinBackoff(shortest)}
	if len(s.breaks) > 0 {
		options = append(options, csitest.Lenient())
	}
	st.double = csitest.New(t, options...)

	path, err := programs.Path(s.caller)
	require.NoError(t, err)
	sidecar, err := process.Start(process.Command{Name: s.caller, Dir: t.TempDir(), Path: path, Args: append([]string{
		"--csi-address=" + st.double.Endpoint(), "--kubeconfig=" + plane.Kubeconfig,
		"--kube-api-qps=200", "--kube-api-burst=400", "--v=4",
	}, s.flags...)})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, sidecar.Stop())
		if t.Failed() {
			t.Logf("the end of the log of %s: %s", s.caller, sidecar.Tail())
		}
	})

	s.run(st)
	var broken []string
	for _, f := range st.double.Emulator().Findings() {
		broken = append(broken, string(f.Rule))
	}
	slices.Sort(broken)
	broken = slices.Compact(broken)
	require.Subset(t, s.breaks, broken, "rules of the volume lifecycle that the caller may break")
	return s.row(st)
}

// wait waits until n calls that match have ended.
func (s *stage) wait(n int, match string) []*journal.Entry {
	s.Helper()
	m, err := journal.ParseMatch(match)
	require.NoError(s, err)
	found, err := s.double.Journal().Wait(s.ctx, m, n)
	require.NoError(s, err)
	return found
}

// volume makes a volume of 1 GiB by a call of the test's own, which is not to be
// seen in the journal.
func (s *stage) volume() *csi.Volume {
	s.Helper()
	reply, err := s.double.Controller().CreateVolume(s.ctx, &csi.CreateVolumeRequest{
		Name: s.name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	require.NoError(s, err)
	s.double.Journal().Clear()
	return reply.GetVolume()
}
