//go:build linux

package crash_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/internal/step"
)

// startRPC stands for the start of a process where RPCs are named.
const startRPC = step.Start

// TestEveryKillPoint makes every call of every scenario again and again. The
// process kills itself at the first point of the first call, the second of the
// second, and so on, until a call gets through. After each crash everything that
// the state directory promises is checked, the call is repeated, and the volume
// lives on to its end. The start after a crash is killed too, once at each point
// of it with each backend, and in a soak once in each scenario.
func TestEveryKillPoint(t *testing.T) {
	t.Parallel()
	reached := newCoverage()
	var rows, ran atomic.Int64
	killed := map[string]*starts{"loop": {}, "tmpfs": {}, "memory": {}}
	t.Run("killed", func(t *testing.T) {
		for _, s := range scenarios() {
			for _, backend := range s.on {
				if kills() <= defaultKills && s.isSeldom(backend) {
					continue
				}
				rows.Add(1)
				t.Run(s.name+" on "+backend, func(t *testing.T) {
					t.Parallel()
					if testing.Short() && !s.short {
						t.Skip("one of each kind is enough for a short run")
					}
					r := newRig(t, backend, reached, s.disabled...)
					if kills() <= defaultKills {
						r.starts = killed[backend] // of all scenarios, else of each
					}
					s.run(t, r, (*rig).crash)
					ran.Add(1)
				})
			}
		}
	})
	if ran.Load() < rows.Load() {
		return // not all were asked for, or one failed
	}
	var wrong []string
	for _, s := range step.All() {
		if len(reached.seen[s.Name]) == 0 {
			wrong = append(wrong, s.Name+" is listed and was never passed")
		}
	}
	for name, during := range reached.seen {
		s, _ := step.Find(name) // one that is not listed has no RPCs
		for rpc := range during {
			if !slices.Contains(s.During, rpc) {
				wrong = append(wrong, fmt.Sprintf("%s was passed during %s, of which it is not listed", name, rpc))
			}
		}
	}
	require.Empty(t, strings.Join(wrong, "\n"))
}

// TestEveryFailure is TestEveryKillPoint without a kill: the call fails at the
// point. It may leave what the next call of its kind ends, and no more than that.
func TestEveryFailure(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		for _, backend := range s.on {
			t.Run(s.name+" on "+backend, func(t *testing.T) {
				t.Parallel()
				if kills() <= defaultKills && !s.short {
					t.Skip("one of each kind is enough outside a soak")
				}
				s.run(t, newRig(t, backend, newCoverage(), s.disabled...), (*rig).fail)
			})
		}
	}
}

// scenario is one RPC under certain circumstances.
type scenario struct {
	name string
	// on are the backends; short has it run in short tests too.
	on    []string
	short bool
	// disabled are capabilities that the driver does not have.
	disabled []string
	// capability is that of the volumes; nil means a file system, ext4 where
	// there is a choice.
	capability *csi.VolumeCapability
	// prepare brings the world to where the call is made.
	prepare func(*life)
	// call makes it. It is repeated after a crash.
	call func(context.Context, *life, ...grpc.CallOption) (proto.Message, error)
	// done checks what the call was for.
	done func(*life, proto.Message)
}

// isSeldom says whether a row on a backend is left to the soak: raw block volumes
// of tmpfs are the business of loop, and memory shares all but its places.
func (s scenario) isSeldom(backend string) bool {
	return (backend == "tmpfs" && s.capability.GetBlock() != nil) || (backend == "memory" && !s.short)
}

// stop makes a call that does not get past its n-th point.
type stop func(r *rig, t *testing.T, n int, c call) (point string, answer proto.Message)

func (s scenario) run(t *testing.T, r *rig, end stop) {
	witness := &life{t: t, r: r, name: "witness"}
	w := witness.place("", s.capabilityOn(r.backend))
	w.create()
	w.up()
	w.write()
	free := r.free(t)
	answers := map[string]string{}
	for n := 1; ; n++ {
		point, answer := s.stopAt(t, r, n, w, end)
		answers[point] = answer
		have := r.requireExplained(t)
		r.requireOnly(t, have, []string{w.id}, nil)
		require.Equal(t, free, r.free(t), "what is left in the pool")
		if point == "" {
			break
		}
	}
	for point, answer := range answers {
		require.Equal(t, answers[""], answer, "the answer to the call that is repeated after %s", point)
	}
	require.Greater(t, len(answers), 1, "the call passes no point at all")
	witness.end()
	have := r.requireExplained(t)
	r.requireOnly(t, have, nil, nil)
	require.Empty(t, have.staged)
	r.child.end(t)
}

// stopAt stops the scenario's call at its n-th point. It returns the point, "" if
// there are not that many, and the answer at last.
func (s scenario) stopAt(t *testing.T, r *rig, n int, witness *volume, end stop) (point, answer string) {
	l := &life{t: t, r: r, name: fmt.Sprintf("life-%d", n), capability: s.capabilityOn(r.backend)}
	l.v = l.place("", l.capability)
	if s.prepare != nil {
		s.prepare(l)
	}
	before := r.child
	point, resp := end(r, t, n, func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) { return s.call(ctx, l, o...) })
	if point != "" {
		begin := time.Now()
		defer func() { t.Logf("stopped at %s, right after %s", point, time.Since(begin).Round(time.Millisecond)) }()
		if before.isGone() {
			r.restart(t)
			r.requireExplained(t)
		}
		witness.requireData()
		var err error
		resp, err = s.call(t.Context(), l)
		require.NoError(t, err, "the call after %s", point)
		again, err := s.call(t.Context(), l)
		require.NoError(t, err)
		require.Empty(t, differences(resp, again), "two answers to one call")
		r.points.add(rpcOf(resp), point)
	}
	r.requireExplained(t)
	if s.done != nil {
		s.done(l, resp)
	}
	witness.requireData()
	witness.requireWritable()
	l.end()
	return point, r.normal(resp)
}

func differences(a, b proto.Message) string {
	if proto.Equal(a, b) {
		return ""
	}
	return fmt.Sprintf("%v and %v", a, b)
}

func (s scenario) capabilityOn(backend string) *csi.VolumeCapability {
	switch {
	case s.capability != nil:
		return s.capability
	case backend == "loop":
		return mountCapability("ext4")
	default:
		return mountCapability("")
	}
}

var (
	ids     = regexp.MustCompile(`(vol|snap|group|csiemu)-[0-9a-f]{24}`)
	devices = regexp.MustCompile(`"7:\d+"`)
	times   = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
)

// normal is an answer without what differs from volume to volume.
func (r *rig) normal(resp proto.Message) string {
	b, err := protojson.Marshal(resp)
	if err != nil {
		return err.Error()
	}
	s := ids.ReplaceAllString(string(b), "$1-id")
	s = devices.ReplaceAllString(s, `"device"`)
	s = times.ReplaceAllString(s, `"time"`)
	// protojson varies its spaces on purpose.
	return regexp.MustCompile(`\s+`).ReplaceAllString(s, "")
}
