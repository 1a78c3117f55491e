package e2e_test

import "github.com/stretchr/testify/require"

// attacher are the situations of external-attacher.
func attacher() []situation {
	all := []situation{
		{
			name: "the driver is not there twice", faults: []string{"ControllerPublishVolume: 2*return(UNAVAILABLE)->ok"},
			does: "asks again at once, woken by its own update of the attachment, and backs off only then", clause: "Error Scheme: retry with exponential back-off", breaks: []string{tooSoon}, run: (*stage).lifeOfAttachment,
		},
		{
			name: "the reply is lost", faults: []string{"ControllerPublishVolume: drop->ok"},
			does: "asks again at once and takes the attachment that was made", clause: "ControllerPublishVolume: idempotent", breaks: []string{tooSoon}, run: (*stage).lifeOfAttachment,
		},
		{
			name: "no answer", faults: []string{"ControllerPublishVolume: 1*hang->ok"}, flags: []string{"--timeout=2s"},
			does: "gives up at its `--timeout` (here 2 s) and asks again", clause: "Timeouts: the caller repeats the call", run: (*stage).lifeOfAttachment,
		},
		{
			name: "it is to be detached while attaching fails", faults: []string{"ControllerPublishVolume: return(INTERNAL)"},
			does: "asks again at once as above, then detaches what may never have been attached", clause: "ControllerUnpublishVolume: idempotent", breaks: []string{tooSoon}, run: (*stage).detachedBeforeAttached,
		},
		{
			name: "detaching fails twice", faults: []string{"ControllerUnpublishVolume: 2*return(INTERNAL)->ok"},
			does: "backs off and asks again; the attachment stays until then", clause: "Error Scheme: retry with exponential back-off", run: (*stage).lifeOfAttachment,
		},
		{
			name: "the reply to the detaching is lost", faults: []string{"ControllerUnpublishVolume: drop->ok"},
			does: "asks again and takes OK for what is detached", clause: "ControllerUnpublishVolume: idempotent", run: (*stage).lifeOfAttachment,
		},
	}
	for i := range all {
		all[i].caller = "csi-attacher"
	}
	return all
}

// lifeOfAttachment has a volume attached and detached.
func (s *stage) lifeOfAttachment() {
	s.persistent(s.volume())
	s.node()
	s.attach()
	s.attached()
	require.Len(s, s.double.Attachments(), 1)
	s.detach()
	require.Empty(s, s.double.Attachments())
}

func (s *stage) detachedBeforeAttached() {
	s.persistent(s.volume())
	s.node()
	s.attach()
	s.wait(2, "ControllerPublishVolume{code=INTERNAL}")
	s.detach()
	s.double.Journal().Want(s, "ControllerPublishVolume{code=INTERNAL}", "ControllerUnpublishVolume{code=OK}")
	require.Empty(s, s.double.Attachments())
}
