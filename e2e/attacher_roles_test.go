package e2e_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/e2e/control"
	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/e2e/programs"
	"github.com/csiemu/csiemu/journal"
)

// scenario is a life of a VolumeAttachment, and what attachers make of it.
type scenario struct {
	name string
	// faults are those of the volume alone; flags are more of them for the program.
	faults []string
	flags  string
	// prepare edits the objects before they are made; run does what happens, by
	// default an attach and a detach.
	prepare, run func(*play)
	// calls and writes are external-attacher's, and those of --strict; ours says
	// what is otherwise without it, and why.
	calls, writes []string
	ours          outcomeOf
	// repeats says that how often it is tried depends on how quick the test is;
	// leaks that external-attacher leaves the volume attached.
	repeats, leaks bool
}

// outcomeOf is what is otherwise; nil lists are the same.
type outcomeOf struct {
	calls, writes []string
	why           string
}

// result is what an attacher made of a scenario.
type result struct {
	calls, writes []string
	// requests are those of the calls that succeeded.
	requests []proto.Message
	findings []string
}

// contestant is an attacher and how it is run.
type contestant struct {
	name         string
	mine, strict bool
	command      []string
	// as is the user that it is for the API server; "" has every right.
	as string
}

// TestAttacherAsUpstream has csiemu's attacher and external-attacher do the same
// work, on one API server with one driver, and compares what they asked of the
// driver and wrote. Ours has the rights of its manifests and no others.
func TestAttacherAsUpstream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	plane, _ := newPlane(ctx, t)
	grant(t, plane.Client, "../testdata/rbac/attacher.yaml")

	theirs, err := programs.Path("csi-attacher")
	require.NoError(t, err)
	election := []string{"--leader-election", "--leader-election-namespace=" + rightsNamespace}
	ours := append([]string{buildCSIEmu(t), "attacher"}, election...)
	all := map[string]map[string]result{}
	used := map[string]bool{}
	for _, c := range []contestant{
		{name: "external-attacher", command: []string{theirs, "--kube-api-qps=1000", "--kube-api-burst=1000", "--v=4"}},
		{name: "csiemu", mine: true, command: ours, as: rightsAccount},
		{name: "csiemu --strict", mine: true, strict: true, command: append(slices.Clone(ours), "--strict"), as: rightsAccount},
	} {
		all[c.name] = map[string]result{}
		for _, flags := range []string{"", "--reconcile-sync=2s"} {
			c.playAll(ctx, t, plane, flags, all[c.name], used)
		}
	}
	if t.Failed() {
		return
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			s.compare(t, all["external-attacher"][s.name], all["csiemu"][s.name], all["csiemu --strict"][s.name])
		})
	}
	require.Empty(t, unused(t, "../testdata/rbac/attacher.yaml", used), "rights that nothing needed")
	checkScenarios(t)
}

// playAll runs a program and has it play all scenarios with some flags at once.
func (c contestant) playAll(ctx context.Context, t *testing.T, plane *control.Plane, flags string, results map[string]result, used map[string]bool) {
	double := csitest.New(t, csitest.DriverName(rightsDriver), csitest.Lenient(), csitest.MinBackoff(shortest), csitest.JournalCapacity(100_000))
	writes := record(t, plane, c.as)
	args := append(slices.Clone(c.command[1:]), "--csi-address="+double.Endpoint(), "--kubeconfig="+kubeconfigOf(t, plane, writes.URL, ""),
		"--timeout=2s", "--reconcile-sync=1h")
	args = append(args, strings.Fields(flags)...)
	program, err := process.Start(process.Command{Name: "attacher", Dir: t.TempDir(), Path: c.command[0], Args: args})
	require.NoError(t, err)
	plays := map[string]*play{}
	t.Run(strings.TrimSpace(c.name+" "+flags), func(t *testing.T) {
		for _, s := range scenarios() {
			if s.flags != flags {
				continue
			}
			p := &play{stage: stage{ctx: ctx, double: double, client: plane.Client, driver: rightsDriver, name: s.object(c)}, scenario: s, mine: c.mine, strict: c.strict}
			plays[s.name] = p
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p.T = t
				ctx, cancel := context.WithTimeout(p.ctx, limit/4)
				defer cancel()
				p.ctx = ctx
				p.play()
			})
		}
	})
	require.NoError(t, program.Stop())
	if t.Failed() {
		t.Logf("the end of the log of %s: %s", c.name, program.Tail())
	}
	for name, p := range plays {
		r := result{writes: writes.of(p.name)}
		for _, e := range double.Journal().Entries(0) {
			p.learn(&r, e)
		}
		results[name] = r
	}
	require.Empty(t, writes.of(""), "writes to anything else")
	if c.mine {
		maps.Copy(used, writes.used)
	}
}

// learn adds a call to what a program made of a scenario.
func (p *play) learn(r *result, e *journal.Entry) {
	method := map[string]string{"ControllerPublishVolume": publish, "ControllerUnpublishVolume": unpublish}[e.Method]
	if method == "" || e.Volume != p.handle || !e.Done {
		return
	}
	r.findings = append(r.findings, e.Findings...)
	if e.Code == codes.OK {
		r.calls = append(r.calls, method)
		r.requests = append(r.requests, anonymous(e.Request))
		return
	}
	if e.Fault != "" && strings.Contains(e.Fault, "drop") {
		r.calls = append(r.calls, method+" UNAVAILABLE")
		return
	}
	r.calls = append(r.calls, method+" "+outcome(e))
}

// anonymous is a request without the volume's id, which differs.
func anonymous(request proto.Message) proto.Message {
	switch r := proto.Clone(request).(type) {
	case *csi.ControllerPublishVolumeRequest:
		r.VolumeId = ""
		return r
	case *csi.ControllerUnpublishVolumeRequest:
		r.VolumeId = ""
		return r
	}
	return request
}

// compare holds three results against what is said of the scenario.
func (s scenario) compare(t *testing.T, theirs, ours, strict result) {
	// External-attacher repeats some, as its cache is late: not in every run.
	require.True(t, within(s.calls, theirs.calls), "external-attacher called %q, want %q", theirs.calls, s.calls)
	require.True(t, within(s.writes, theirs.writes), "external-attacher wrote %q, want %q", theirs.writes, s.writes)
	require.Subset(t, s.calls, theirs.calls)
	require.Subset(t, s.writes, theirs.writes)

	exact := func(list []string) []string {
		if s.repeats {
			return slices.Compact(slices.Clone(list))
		}
		return list
	}
	require.Equal(t, exact(s.calls), exact(strict.calls), "calls with --strict")
	require.Equal(t, exact(s.writes), exact(strict.writes), "writes with --strict")
	require.Equal(t, exact(or(s.ours.calls, s.calls)), exact(ours.calls), "calls")
	require.Equal(t, exact(or(s.ours.writes, s.writes)), exact(ours.writes), "writes")
	for _, r := range []result{ours, strict} {
		if s.flags == "" {
			require.Empty(t, r.findings, "rules of the volume lifecycle that it broke")
		}
		// What is asked of the driver is the same, field by field.
		for _, request := range r.requests {
			require.True(t, slices.ContainsFunc(theirs.requests, func(m proto.Message) bool { return proto.Equal(m, request) }) || s.ours.calls != nil,
				"%s: csiemu asked for %v, external-attacher for %v", s.name, request, theirs.requests)
		}
	}
}

// within reports whether a list has all of another one, in its order.
func within(wanted, list []string) bool {
	for _, one := range list {
		if len(wanted) > 0 && wanted[0] == one {
			wanted = wanted[1:]
		}
	}
	return len(wanted) == 0
}

func or(first, second []string) []string {
	if first != nil {
		return first
	}
	return second
}
