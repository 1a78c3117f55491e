//go:build linux

package crash_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestMissingImage takes the bytes of a volume away: nobody gets an empty volume
// in their place, and what is left of it can be removed.
func TestMissingImage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reach   func(*volume) // how far the volume is in use
		restart bool
	}{
		"of a volume that nobody uses":                       {func(*volume) {}, false},
		"of a volume that nobody uses, before a start":       {func(*volume) {}, true},
		"of a volume that is attached, before a start":       {(*volume).attach, true},
		"of a volume that is in use, which goes on":          {(*volume).up, false},
		"of a volume that is in use, before the next start":  {(*volume).up, true},
		"of a volume that is staged only, before a start":    {func(v *volume) { v.attach(); v.stage() }, true},
		"of a volume that is staged only, and unstaged then": {func(v *volume) { v.attach(); v.stage() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "loop", newCoverage())
			l := &life{t: t, r: r, name: "life", capability: mountCapability("ext4")}
			witness, v := l.place("-witness", l.capability), l.place("", l.capability)
			witness.create()
			witness.up()
			witness.write()
			v.create()
			c.reach(v)
			require.NoError(t, os.Remove(filepath.Join(r.state, "volumes", v.id, "image")))
			if c.restart {
				r.child.end(t)
				r.start(t)
			}
			v.down()
			_, err := r.ControllerPublishVolume(t.Context(), v.attachRequest())
			require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
			require.ErrorContains(t, err, "bytes are lost")
			_, err = r.CreateSnapshot(t.Context(), l.snapshotRequest(v, "-cut"))
			require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
			witness.requireData()
			l.end()
			r.requireOnly(t, r.requireExplained(t), nil, nil)
			r.child.end(t)
		})
	}
}

// TestTwoProcesses lets only one of them have a state directory.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, "loop", newCoverage())
	second, ready := startChild(t, r.spec(), r.tmp)
	require.False(t, ready)
	require.Contains(t, second.log.String(), "is locked by process")
	require.Contains(t, second.log.String(), r.state)
	l := &life{t: t, r: r, name: "life", capability: mountCapability("ext4")}
	v := l.place("", l.capability)
	v.create()
	v.up()
	v.write()
	v.requireData()
	l.end()
	r.child.end(t)
}
