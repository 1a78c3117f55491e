//go:build linux

package crash_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
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
	killed := map[string]*starts{"loop": {}, "tmpfs": {}, "memory": {}}
	t.Run("killed", func(t *testing.T) {
		for _, s := range scenarios() {
			for _, backend := range s.on {
				t.Run(s.name+" on "+backend, func(t *testing.T) {
					t.Parallel()
					if testing.Short() && !s.short {
						t.Skip("one of each kind is enough for a short run")
					}
					s.run(t, backend, reached, killed[backend])
				})
			}
		}
	})
	if testing.Short() || t.Failed() {
		return
	}
	var wrong []string
	for _, s := range step.All() {
		listed, passed := slices.Sorted(slices.Values(s.During)), slices.Sorted(maps.Keys(reached.seen[s.Name]))
		if !slices.Equal(listed, passed) {
			wrong = append(wrong, fmt.Sprintf("%s is listed with %v and was passed during %v", s.Name, listed, passed))
		}
	}
	for name := range reached.seen {
		if _, ok := step.Find(name); !ok {
			wrong = append(wrong, fmt.Sprintf("%s is not listed", name))
		}
	}
	require.Empty(t, strings.Join(wrong, "\n"))
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

func (s scenario) run(t *testing.T, backend string, reached *coverage, killed *starts) {
	r := newRig(t, backend, reached, s.disabled...)
	if kills() <= defaultKills {
		r.starts = killed // of all scenarios, else of each
	}
	witness := &life{t: t, r: r, name: "witness"}
	w := witness.place("", s.capabilityOn(backend))
	w.create()
	w.up()
	w.write()
	free := r.free(t)
	answers := map[string]string{}
	for n := 1; ; n++ {
		point, answer := s.crashAt(t, r, n, w)
		answers[point] = answer
		have := r.requireExplained(t)
		r.requireOnly(t, have, []string{w.id}, nil)
		require.Equal(t, free, r.free(t), "what is left in the pool")
		if point == "" {
			break
		}
	}
	for point, answer := range answers {
		require.Equal(t, answers[""], answer, "the answer to the call that is repeated after a crash at %s", point)
	}
	require.Greater(t, len(answers), 1, "the call passes no point at all")
	witness.end()
	have := r.requireExplained(t)
	r.requireOnly(t, have, nil, nil)
	require.Empty(t, have.staged)
	r.child.end(t)
}

// crashAt kills the n-th point of the scenario's call. It returns the point, ""
// if there are not that many, and the answer at last.
func (s scenario) crashAt(t *testing.T, r *rig, n int, witness *volume) (point, answer string) {
	l := &life{t: t, r: r, name: fmt.Sprintf("life-%d", n), capability: s.capabilityOn(r.backend)}
	l.v = l.place("", l.capability)
	if s.prepare != nil {
		s.prepare(l)
	}
	point, resp := r.crash(t, n, func(ctx context.Context, o ...grpc.CallOption) (proto.Message, error) { return s.call(ctx, l, o...) })
	if point != "" {
		begin := time.Now()
		defer func() { t.Logf("killed at %s, right after %s", point, time.Since(begin).Round(time.Millisecond)) }()
		r.restart(t)
		r.requireExplained(t)
		witness.requireData()
		var err error
		resp, err = s.call(t.Context(), l)
		require.NoError(t, err, "the call after a crash at %s", point)
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
