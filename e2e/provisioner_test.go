package e2e_test

import (
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	core "k8s.io/api/core/v1"
)

// provisioner are the situations of external-provisioner.
func provisioner() []situation {
	byName := "CreateVolume: idempotent by `name`"
	all := []situation{
		{
			name: "the reply is lost", faults: []string{"CreateVolume: drop->ok"},
			does: "asks again under the same name and takes the volume that was made", clause: byName, run: (*stage).lifeOfClaim,
		},
		{
			name: "the driver is not there twice", faults: []string{"CreateVolume: 2*return(UNAVAILABLE)->ok"},
			does: "backs off and asks again under the same name", clause: "Error Scheme: retry with exponential back-off", run: (*stage).lifeOfClaim,
		},
		{
			name: "no answer", faults: []string{"CreateVolume: 1*hang->ok"}, flags: []string{"--timeout=2s"},
			does: "gives up at its `--timeout` (here 2 s) and asks again", clause: "Timeouts: the caller repeats the call", run: (*stage).lifeOfClaim,
		},
		{
			name: "another call is under way", faults: []string{"CreateVolume: return(ABORTED)->ok"},
			does: "backs off and asks again", clause: "Error Scheme: ABORTED, operation pending", run: (*stage).lifeOfClaim,
		},
		{
			name: "the size cannot be", faults: []string{"CreateVolume: 2*return(OUT_OF_RANGE)->ok"},
			does: "backs off and asks for the same size again: **the clause is not followed**", clause: "CreateVolume, OUT_OF_RANGE: fix the capacity range before retrying", run: (*stage).lifeOfClaim,
		},
		{
			name: "the parameters cannot be", faults: []string{"CreateVolume{request.capacity_range.required_bytes=1073741824}: return(INVALID_ARGUMENT)"},
			does: "does not ask again for minutes (`--retry-interval-max`); meanwhile another claim gets its volume at the third call", clause: "Error Scheme, INVALID_ARGUMENT: fix the request before retrying",
			run: (*stage).parametersThatCannotBe,
		},
		{
			name: "the claim is deleted while the outcome is unknown", faults: []string{"CreateVolume: drop->2*return(UNAVAILABLE)->ok"},
			does: "asks again at once, woken by the deletion, and goes on until it knows the volume, to delete it: nothing is left behind", clause: "CreateVolume: idempotent by `name`, to be cleaned up",
			breaks: []string{tooSoon}, run: (*stage).claimDeletedInTheDark,
		},
		{
			name: "the claim is deleted after a lost reply, and the next answer is final", faults: []string{"CreateVolume{request.capacity_range.required_bytes=1073741824}: drop->return(INTERNAL)"},
			does: "asks again at once, takes INTERNAL as the end of the matter and never deletes: **the volume of the first call is left behind**", clause: "Error Scheme: INTERNAL says nothing of what was made before",
			breaks: []string{tooSoon}, run: (*stage).claimDeletedAfterFinalError,
		},
		{
			name: "the volume cannot be deleted yet", faults: []string{"DeleteVolume: 2*return(FAILED_PRECONDITION)->ok"},
			does: "backs off and asks again; the object of the volume stays until then", clause: "DeleteVolume: FAILED_PRECONDITION, volume in use", run: (*stage).lifeOfClaim,
		},
		{
			name: "the reply to the deletion is lost", faults: []string{"DeleteVolume: drop->ok"},
			does: "asks again and takes OK for a volume that is gone", clause: "DeleteVolume: idempotent", run: (*stage).lifeOfClaim,
		},
	}
	for i := range all {
		all[i].caller = "csi-provisioner"
	}
	return all
}

// lifeOfClaim has a claim get a volume and give it back.
func (s *stage) lifeOfClaim() {
	s.class()
	s.claim(s.name, 1, "")
	object := s.bound(s.name)
	require.Len(s, s.double.Volumes(), 1)
	s.oneName()
	gone := untilGone[*core.PersistentVolume](s, s.client.CoreV1().PersistentVolumes().Watch, object)
	s.unclaim(s.name)
	gone()
	require.Empty(s, s.double.Volumes())
}

// oneName asserts that all calls were for one volume, by the same request.
func (s *stage) oneName() {
	s.Helper()
	created := s.wait(1, "CreateVolume")
	for _, e := range created {
		require.Equal(s, created[0].Name, e.Name)
		require.True(s, proto.Equal(created[0].Request, e.Request), "the same request: %v", e.Request)
		require.Regexp(s, `^pvc-[0-9a-f-]{36}$`, e.Name)
	}
}

// parametersThatCannotBe shows that a call is not made again soon, by another claim
// that is made and served meanwhile.
func (s *stage) parametersThatCannotBe() {
	s.class()
	s.claim(s.name, 1, "")
	s.wait(1, "CreateVolume{code=INVALID_ARGUMENT}")
	s.meanwhile()
	s.unclaim(s.name)
	s.double.Journal().WantCount(s, 1, "CreateVolume{code=INVALID_ARGUMENT}")
	s.double.Journal().Never(s, "DeleteVolume")
}

// otherClaim are the calls for the claim of meanwhile, which tables do not show.
const otherClaim = "CreateVolume{request.capacity_range.required_bytes=2147483648}"

// meanwhile has another claim get its volume after two errors, which takes the
// sidecar's first two waits, 3 s.
func (s *stage) meanwhile() {
	s.Helper()
	s.double.Inject(otherClaim + ": 2*return(UNAVAILABLE)->ok")
	other := s.name + "-other"
	s.claim(other, 2, "")
	s.bound(other)
}

func (s *stage) claimDeletedInTheDark() {
	s.class()
	s.claim(s.name, 1, "")
	s.wait(1, "CreateVolume")
	require.Len(s, s.double.Volumes(), 1, "of the call whose reply was lost")
	s.unclaim(s.name)
	s.double.Journal().Never(s, "CreateVolume{code=OK}")
	s.wait(1, "DeleteVolume{code=OK}")
	s.oneName()
	require.Empty(s, s.double.Volumes())
}

func (s *stage) claimDeletedAfterFinalError() {
	s.class()
	s.claim(s.name, 1, "")
	s.wait(1, "CreateVolume")
	s.unclaim(s.name)
	s.meanwhile()
	s.wait(1, "CreateVolume{code=INTERNAL}")
	s.double.Journal().Never(s, "DeleteVolume")
	require.Len(s, s.double.Volumes(), 2, "that of the call whose reply was lost, and that of the other claim")
}
