package e2e_test

import (
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
)

// resizer are the situations of external-resizer.
func resizer() []situation {
	all := []situation{
		{
			name: "another call is under way", faults: []string{"ControllerExpandVolume: return(ABORTED)->ok"},
			does: "asks again, mostly woken by its own update of the claim", clause: "Error Scheme: ABORTED, operation pending", breaks: []string{tooSoon}, run: (*stage).growth,
		},
		{
			name: "the driver is not there three times", faults: []string{"ControllerExpandVolume: 3*return(UNAVAILABLE)->ok"},
			does: "asks again, with a back-off that it cuts short itself", clause: "Error Scheme: retry with exponential back-off", breaks: []string{tooSoon}, run: (*stage).growth,
		},
		{
			name: "the reply is lost", faults: []string{"ControllerExpandVolume: drop->ok"},
			does: "asks again and takes the size that was made", clause: "ControllerExpandVolume: idempotent", breaks: []string{tooSoon}, run: (*stage).growth,
		},
		{
			name: "no answer", faults: []string{"ControllerExpandVolume: 1*hang->ok"}, flags: []string{"--timeout=2s"},
			does: "gives up at its `--timeout` (here 2 s) and asks again", clause: "Timeouts: the caller repeats the call", run: (*stage).growth,
		},
		{
			name: "the size cannot be", faults: []string{"ControllerExpandVolume{request.capacity_range.required_bytes=3221225472}: return(OUT_OF_RANGE)"},
			does: "says so in the claim, and asks again only for as long as its cache is stale; when the claim asks for less, asks for that", clause: "ControllerExpandVolume: OUT_OF_RANGE", breaks: []string{tooSoon},
			run: (*stage).growthThatCannotBe,
		},
	}
	for i := range all {
		all[i].caller = "csi-resizer"
	}
	return all
}

// boundVolume makes a claim that is bound to a volume of 1 GiB.
func (s *stage) boundVolume() {
	s.Helper()
	s.persistent(s.volume())
	s.class()
	s.claim(s.name, 1, s.name)
	s.bound(s.name)
}

// growth has a volume of 1 GiB grow to 2 GiB.
func (s *stage) growth() {
	s.boundVolume()
	s.ask(s.name, 2)
	s.grownTo(2)
}

// grownTo waits until the controller's half is done, as the objects say.
func (s *stage) grownTo(gibs int64) {
	s.Helper()
	want := storageOf(gibs)[core.ResourceStorage]
	s.volumeIs(s.name, func(v *core.PersistentVolume) bool { return v.Spec.Capacity.Storage().Equal(want) })
	s.claimIs(s.name, resizeIs(core.PersistentVolumeClaimNodeResizePending))
	require.EqualValues(s, gibs*gib, s.double.Volumes()[0].SizeBytes)
}

func resizeIs(status core.ClaimResourceStatus) func(*core.PersistentVolumeClaim) bool {
	return func(c *core.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[core.ResourceStorage] == status
	}
}

// mostStale is how often the sidecar may ask in vain: once, and a few times more
// before its cache has its own update of the claim.
const mostStale = 5

func (s *stage) growthThatCannotBe() {
	s.boundVolume()
	s.ask(s.name, 3)
	s.claimIs(s.name, resizeIs(core.PersistentVolumeClaimControllerResizeInfeasible))
	s.ask(s.name, 2)
	s.grownTo(2)
	require.LessOrEqual(s, len(s.wait(1, "ControllerExpandVolume{code=OUT_OF_RANGE}")), mostStale)
}
