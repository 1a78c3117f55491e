package model_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/emulator"
)

// The random choices of a run begin with $CSIEMU_MODEL_SEED, which the log names;
// its length is $CSIEMU_MODEL_ROUNDS. The same choices meet in another order each
// time.
const (
	seedVariable   = "CSIEMU_MODEL_SEED"
	roundsVariable = "CSIEMU_MODEL_ROUNDS"
)

func memorySetup(strict bool) setup {
	return setup{
		name: "memory", clients: 8, calls: 50, strict: strict,
		modes: []csi.VolumeCapability_AccessMode_Mode{writer, writer, shared, shared, reader},
		open:  func(*testing.T) (backends.Backend, string) { return memory.New(memory.Options{}), "" },
	}
}

func TestManyCallersOfMemory(t *testing.T) {
	t.Parallel()
	compare(t, memorySetup(false), 8)
}

func TestManyCallersOfMemoryWithStrictLocks(t *testing.T) {
	t.Parallel()
	compare(t, memorySetup(true), 8)
}

// compare runs rounds of many callers, and asserts that each was answered as the
// model answers.
func compare(t *testing.T, s setup, rounds int) {
	seed := number(t, seedVariable, rand.Uint64N(1<<32))
	rounds = int(number(t, roundsVariable, uint64(rounds)))
	seen := map[string]int{}
	for i := range rounds {
		t.Logf("round %d: %s=%d", i, seedVariable, seed+uint64(i))
		playRound(t, s, seed+uint64(i), seen)
	}
	requireEverythingSeen(t, seen, !s.devices && rounds >= 8)
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// playRound lets clients call an emulator of its own, and counts their answers
// in seen.
func playRound(t *testing.T, s setup, seed uint64, seen map[string]int) {
	t.Helper()
	backend, state := s.open(t)
	w := &world{setup: s, rig: newRig(t, emulator.Config{Backend: backend, StateDir: state, StrictLocks: s.strict})}
	w.devices = s.devices
	for i := range 2 {
		w.families = append(w.families, newFamily(i))
	}
	var all sync.WaitGroup
	for i := range s.clients {
		c := &client{world: w, number: i + 1, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		all.Go(func() { c.run(t.Context(), s.calls) })
	}
	all.Wait()
	w.stop()
	end := w.clock.Add(1)
	for _, f := range w.families {
		for _, o := range f.history {
			if o.lost {
				o.end = end
			}
		}
	}
	w.serve(t)
	// The histories are compared even if something is left, which they explain.
	defer func() {
		for _, f := range w.families {
			m := &model{names: f.names, devices: s.devices}
			require.Empty(t, m.check(f.history))
			require.Empty(t, unexplained(f.history), "ABORTED without another call")
			for _, o := range f.history {
				seen[o.method()+" "+answerKind(o)]++
			}
		}
	}()
	(&client{world: w}).cleanUp(t)
}

func answerKind(o *operation) string {
	if o.lost {
		return "given up"
	}
	return o.code.String()
}

// requireEverythingSeen asserts that a run was worth it, if it was long enough for
// that: every method succeeded, and calls were refused.
func requireEverythingSeen(t *testing.T, seen map[string]int, enough bool) {
	t.Helper()
	counts := make([]string, 0, len(seen))
	methods := map[string]bool{}
	for what, n := range seen {
		counts = append(counts, fmt.Sprintf("%s %d", what, n))
		method, _, _ := strings.Cut(what, " ")
		methods[method] = true
	}
	slices.Sort(counts)
	t.Log(strings.Join(counts, ", "))
	if !enough {
		return
	}
	require.Len(t, methods, 16)
	for method := range methods {
		require.NotZero(t, seen[method+" "+codes.OK.String()], "%s never succeeded", method)
	}
	require.NotZero(t, seen["NodeStageVolume "+codes.FailedPrecondition.String()])
	require.NotZero(t, seen["CreateVolume "+codes.AlreadyExists.String()])
}
