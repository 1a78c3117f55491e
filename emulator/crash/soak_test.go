//go:build linux

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// killsVariable is how often TestKillsAtRandom kills; seedVariable repeats
	// the choices of an earlier run, but not its timing.
	killsVariable = "CSIEMU_KILLS"
	seedVariable  = "CSIEMU_SEED"
	defaultKills  = 15
	// soakClients live at once.
	soakClients = 8
)

// kills is how often to kill at random.
func kills() int {
	n, err := strconv.Atoi(os.Getenv(killsVariable))
	if err != nil {
		return defaultKills
	}
	return n
}

// TestKillsAtRandom kills an emulator again and again while clients lead random
// lives: at a moment that nobody chose, or at a kill point of a call that happens
// to be the next, and now and then its start as well. After each start what the
// clients were told is compared with what is there.
func TestKillsAtRandom(t *testing.T) {
	t.Parallel()
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	fmt.Printf("%s=%d %s=%d\n", killsVariable, kills(), seedVariable, seed)
	r := newRig(t, "loop", newCoverage())
	s := &soak{rig: r, model: newModel(), line: newLine(r.conn)}
	r.clients = clientsOf(s.line)
	free := r.free(t)

	var done sync.WaitGroup
	var stop atomic.Bool
	var lives atomic.Int64
	defer done.Wait()
	defer stop.Store(true)
	for i := range soakClients {
		c := &soakClient{soak: s, t: t, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		// What require finds ends the client; the others see that the test failed.
		done.Go(func() {
			for n := 0; !stop.Load() && !t.Failed(); n++ {
				c.live(fmt.Sprintf("c%d-%d", i, n))
				lives.Add(1)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, soakClients))
	for n := 1; n <= kills() && !t.Failed(); n++ {
		s.kill(random)
		s.restart(t, random)
		if n%50 == 0 {
			fmt.Printf("%d of %d kills\n", n, kills())
		}
	}
	stop.Store(true)
	done.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d lives came to their end", lives.Load())
	require.Positive(t, lives.Load())
	have := r.requireExplained(t)
	r.requireOnly(t, have, nil, nil)
	require.Empty(t, have.staged)
	require.Equal(t, free, r.free(t))
	r.child.end(t)
}

// soak is an emulator that is killed while clients use it.
type soak struct {
	rig   *rig
	model *model
	line  *line
}

// kill ends the process at a random moment, or at a random point of the next
// call.
func (s *soak) kill(random *rand.Rand) {
	const longest, points = 400, 14 // milliseconds
	patient := time.Duration(1+random.IntN(longest)) * time.Millisecond
	if random.IntN(2) == 0 {
		s.line.arm(1 + random.IntN(points))
		patient = 2 * time.Second // calls that pass fewer points survive
	}
	late := time.NewTimer(patient)
	defer late.Stop()
	select {
	case <-s.rig.child.ended:
	case <-late.C:
	}
	s.line.cut()
	s.rig.child.kill()
}

// restart starts the emulator again, not always at the first attempt, and
// compares what is there with what was told before anybody may call again.
func (s *soak) restart(t *testing.T, random *rand.Rand) {
	t.Helper()
	const points = 8
	for ready := false; !ready; {
		spec := s.rig.spec()
		if random.IntN(3) == 0 {
			spec.KillAt = 1 + random.IntN(points)
		}
		ready = s.rig.tryStart(t, spec)
	}
	s.model.requireKept(t, s.rig.requireExplained(t))
	s.line.mend(s.rig.conn)
}

// soakClient leads one random life after the other.
type soakClient struct {
	soak   *soak
	t      *testing.T
	random *rand.Rand
}

// live is the life of one volume, with copies.
func (c *soakClient) live(name string) {
	capability := mountCapability("ext4")
	if c.random.IntN(3) == 0 {
		capability = blockCapability()
	}
	l := &life{t: c.t, r: c.soak.rig, name: name, capability: capability, told: c.soak.model}
	l.v = l.place("", capability)
	l.v.create()
	l.v.up()
	l.v.write()
	for i := range c.random.IntN(4) {
		switch c.random.IntN(6) {
		case 0:
			l.v.write()
		case 1:
			l.v.unpublish()
			l.v.publish()
		case 2:
			l.v.down()
			l.v.up()
		case 3:
			c.grow(l.v)
		case 4:
			c.check(l, fmt.Sprintf("-clone%d", i), l.v.sum, fromVolume(l.v.id))
		case 5:
			cut, sum := l.snapshot(l.v, fmt.Sprintf("-cut%d", i)), l.v.sum
			l.v.write()
			c.check(l, fmt.Sprintf("-restored%d", i), sum, fromSnapshot(cut))
		}
		l.v.requireData()
	}
	l.end()
}

// check makes a copy and looks at its bytes.
func (c *soakClient) check(l *life, suffix, sum string, from func(*csi.CreateVolumeRequest)) {
	made := l.place(suffix, l.capability)
	made.create(from, ofSize(c.soak.rig.sizeOf(c.t, l.v)))
	made.up()
	made.requireSum(sum)
	if c.random.IntN(2) == 0 {
		made.down()
		made.delete()
		made.id = ""
	}
}

// grow makes a volume larger while it is in use, as far as this machine can.
func (c *soakClient) grow(v *volume) {
	size := &csi.CapacityRange{RequiredBytes: c.soak.rig.sizeOf(c.t, v) + 4*mib}
	_, err := c.soak.rig.ControllerExpandVolume(c.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: v.id, CapacityRange: size, VolumeCapability: v.capability,
	})
	require.NoError(c.t, err)
	_, err = c.soak.rig.NodeExpandVolume(c.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, CapacityRange: size,
	})
	if status.Code(err) == codes.FailedPrecondition {
		require.ErrorContains(c.t, err, "CAP_SYS_RESOURCE")
		return
	}
	require.NoError(c.t, err)
}

// sizeOf is the size of a volume as the array lists it.
func (r *rig) sizeOf(t *testing.T, v *volume) int64 {
	t.Helper()
	list, err := r.ListVolumes(context.WithoutCancel(t.Context()), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	for _, e := range list.GetEntries() {
		if e.GetVolume().GetVolumeId() == v.id {
			return e.GetVolume().GetCapacityBytes()
		}
	}
	require.Fail(t, "a volume is not listed", "%s", v.name)
	return 0
}
