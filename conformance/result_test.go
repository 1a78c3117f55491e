package conformance_test

import (
	"context"
	"go/build"
	"regexp"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csiemu/csiemu/conformance"
)

func TestOutcomesOfRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run    func(conformance.T)
		want   conformance.Outcome
		detail string
	}{
		"nothing said":         {func(conformance.T) {}, conformance.Pass, ""},
		"an error":             {func(t conformance.T) { t.Errorf("want %d", 1) }, conformance.Fail, "want 1"},
		"two errors":           {func(t conformance.T) { t.Errorf("one"); t.Errorf("two"); t.Errorf("one") }, conformance.Fail, "one; two"},
		"an end without words": {func(t conformance.T) { t.FailNow() }, conformance.Fail, "the row failed"},
		"an end with words":    {func(t conformance.T) { t.Errorf("no"); t.FailNow(); panic("not reached") }, conformance.Fail, "no"},
		"a skip":               {func(t conformance.T) { t.Skipf("no %s", "node"); panic("not reached") }, conformance.Skip, "no node"},
		"an error after a skip": {func(t conformance.T) {
			t.Cleanup(func() { t.Errorf("left something") })
			t.Skipf("no node")
		}, conformance.Fail, "left something"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test := conformance.Test{RPC: "Probe", Name: "is", Run: func(t conformance.T, _ *conformance.Target) { c.run(t) }}
			result := test.Check(t.Context(), nil)
			require.Equal(t, c.want, result.Outcome)
			require.Equal(t, c.detail, result.Detail)
		})
	}
	panics := conformance.Test{Run: func(conformance.T, *conformance.Target) { panic("ouch") }}
	require.Contains(t, panics.Check(t.Context(), nil).Detail, "the row panicked: ouch")
}

func TestCleanupsRunLastFirstAndAlways(t *testing.T) {
	t.Parallel()
	var order []int
	test := conformance.Test{Run: func(t conformance.T, _ *conformance.Target) {
		t.Cleanup(func() { order = append(order, 1) })
		t.Cleanup(func() { panic("two") })
		t.Cleanup(func() { order = append(order, 3) })
		t.FailNow()
	}}
	require.Equal(t, conformance.Fail, test.Check(t.Context(), nil).Outcome)
	require.Equal(t, []int{3, 1}, order)
}

// TestInterruptedRowsLeaveNothing ends the context of rows before they begin or
// while they wait.
func TestInterruptedRowsLeaveNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, "memory", newMemory, nil, spoiling("NodePublishVolume", func(_, _ proto.Message, err error) error {
		cancel()
		return err
	}))
	target := s.target()
	target.NoData = true
	row := conformance.All()["NodeUnpublishVolume: answers OK a second time"]
	require.Equal(t, conformance.Fail, row.Check(ctx, target).Outcome)
	s.holdsNothing(t)
	require.Equal(t, conformance.Fail, row.Check(ctx, target).Outcome)
	s.holdsNothing(t)
}

func TestTargetWithoutADriverIsSaid(t *testing.T) {
	t.Parallel()
	result := conformance.Ordered()[0].Check(t.Context(), &conformance.Target{})
	require.Equal(t, conformance.Fail, result.Outcome)
	require.Contains(t, result.Detail, "set Target.Controller")
}

// TestRowsAreWhole looks at every row: what it says, and that each RPC of the
// specification has rows.
func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	rpcs := map[string]int{}
	all := conformance.All()
	require.Len(t, all, len(conformance.Ordered()))
	for name, test := range all {
		require.Equal(t, test.RPC+": "+test.Name, name)
		require.NotEmpty(t, test.Clause, name)
		require.NotRegexp(t, regexp.MustCompile(`[.]$|  `), test.Name+test.Clause)
		require.Contains(t, []conformance.Level{conformance.Must, conformance.Should}, test.Level)
		rpcs[test.RPC]++
	}
	for _, name := range []string{"Identity", "Controller", "GroupController", "SnapshotMetadata", "Node"} {
		service := csi.File_csi_proto.Services().ByName(protoreflect.Name(name))
		require.NotNil(t, service, name)
		for i := range service.Methods().Len() {
			require.Positive(t, rpcs[string(service.Methods().Get(i).Name())], service.Methods().Get(i).Name())
		}
	}
}

// TestImportsAreFew holds the package to what every driver's tests have anyway.
func TestImportsAreFew(t *testing.T) {
	t.Parallel()
	p, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	for _, name := range p.Imports {
		first, _, _ := strings.Cut(name, "/")
		if !strings.Contains(first, ".") {
			continue // the standard library
		}
		require.Regexp(t, `^(github\.com/container-storage-interface/spec/lib/go/csi|google\.golang\.org/(grpc|protobuf))(/|$)`, name)
	}
}
