package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/e2e/process"
)

// How much TestAttacherSurvivesRestarts does, from the environment: 500 restarts
// and 1,000 cycles are for when there is time. The seed is of the order of restarts.
const (
	restartsVariable = "CSIEMU_E2E_RESTARTS"
	cyclesVariable   = "CSIEMU_E2E_CYCLES"
	seedVariable     = "CSIEMU_E2E_SEED"
)

// number is a variable of the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

// TestAttacherSurvivesRestarts kills the attacher, the driver and the API server, in
// random order and without warning, while volumes are attached and detached. After
// each attach the driver has the attachment, after each detach it has not; in the
// end everything is gone, and no finalizer is left.
func TestAttacherSurvivesRestarts(t *testing.T) {
	restarts, cycles := number(t, restartsVariable, 20), number(t, cyclesVariable, 60)
	seed := uint64(number(t, seedVariable, int(time.Now().UnixNano()%1_000_000)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(restarts)*6*time.Second+time.Duration(cycles)*time.Second)
	defer cancel()
	plane, dir := newPlane(ctx, t)
	grant(t, plane.Client, "../testdata/rbac/attacher.yaml")

	w := newStorm(ctx, t, plane, dir, seed)
	defer w.close()
	began := time.Now()
	w.blow(restarts, cycles)
	t.Logf("%d cycles of %d volumes, restarts: attacher %d, driver %d, API server %d; %d attachments were deleted before they were made; seed %d, %s",
		w.done.Load(), volumes, w.restarted["attacher"], w.restarted["driver"], w.restarted["API server"], w.early.Load(), seed,
		time.Since(began).Round(time.Second))
	w.calm()
}

// kill ends one of the three and starts it again.
func (w *storm) kill(target string) {
	switch target {
	case "attacher":
		w.require(w.attacher.Kill())
		w.attacher = w.start("attacher", w.attacherFlags()...)
	case "driver":
		w.require(w.driver.Kill())
		w.driver = w.start("driver", w.driverFlags()...)
	default:
		w.require(w.plane.StopAPIServer())
		w.require(w.plane.StartAPIServer(w.ctx))
	}
	w.restarted[target]++
}

// blow restarts and cycles until there were enough of both.
func (w *storm) blow(restarts, cycles int) {
	var working sync.WaitGroup
	stop := make(chan struct{})
	for i := range volumes {
		random := rand.New(rand.NewPCG(w.seed, uint64(i)))
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if !w.cycle(i, random) {
						return
					}
				}
			}
		})
	}
	defer working.Wait()
	defer close(stop)
	random := rand.New(rand.NewPCG(w.seed, volumes))
	for i := range restarts {
		// Restarts are spread over the cycles, and come at any moment of them.
		if !w.reach(int64(cycles*i/restarts)) || !w.pass(time.Duration(random.IntN(400))*time.Millisecond) {
			return
		}
		target := "attacher"
		switch n := random.IntN(10); {
		case n == 0:
			target = "API server"
		case n < 5:
			target = "driver"
		}
		w.kill(target)
	}
	w.reach(int64(cycles))
}

// start starts csiemu in a role.
func (w *storm) start(name string, args ...string) *process.Process {
	p, err := process.Start(process.Command{Name: name, Dir: w.logs, Path: w.csiemu, Args: args})
	w.require(err)
	return p
}

func (w *storm) attacherFlags() []string {
	return []string{
		"attacher", "--csi-address=" + w.endpoint, "--kubeconfig=" + w.kubeconfig, "--log-level=debug",
		"--retry-interval-start=100ms", "--retry-interval-max=1s", "--reconcile-sync=1s", "--timeout=5s",
	}
}

func (w *storm) driverFlags() []string {
	flags := []string{
		"serve", "--driver-name=" + rightsDriver, "--backend=memory", "--state-dir=" + filepath.Join(w.dir, "state"), "--endpoint=" + w.endpoint,
		"--faults=" + filepath.Join(w.dir, "faults"), "--node=" + nodeOf(0),
	}
	for i := 1; i < nodeCount; i++ {
		flags = append(flags, fmt.Sprintf("--node=%s=unix://%s", nodeOf(i), filepath.Join(w.dir, nodeOf(i)+".sock")))
	}
	return flags
}
