// Package lifecycle checks the caller of a CSI driver: whether its calls come in
// the order of the specification's volume lifecycle ("Volume Lifecycle", figures 5
// to 8) and agree with what it was told before.
//
// It sees calls only, not volumes. What it cannot know it does not report: a
// volume that was there before the first call, and what a call that failed has
// done.
package lifecycle

import (
	"fmt"
	"sync"
	"time"

	"github.com/csiemu/csiemu/journal"
)

// Options describe the driver that is called. The zero value is a driver without
// ControllerPublishVolume and NodeStageVolume.
type Options struct {
	// Attaches and Stages say that callers have to call
	// ControllerPublishVolume and NodeStageVolume.
	Attaches, Stages bool
	// Online says that volumes grow while they are attached.
	Online bool
	// EphemeralKey is "true" in the volume context of inline volumes, which have
	// no life before NodePublishVolume, and TokensKey holds the tokens that an
	// orchestrator puts there on purpose; empty for none.
	EphemeralKey, TokensKey string
	// MinBackoff is the shortest wait before a call is tried again; 0 means
	// DefaultMinBackoff, a negative one that no wait is too short.
	MinBackoff time.Duration
}

// DefaultMinBackoff is what a caller that backs off at all waits before its first
// retry.
const DefaultMinBackoff = 50 * time.Millisecond

// Rule names a kind of finding.
type Rule string

// The rules.
const (
	StageBeforeAttach     Rule = "stage-before-attach"
	PublishBeforeStage    Rule = "publish-before-stage"
	PublishBeforeAttach   Rule = "publish-before-attach"
	UnstageWhilePublished Rule = "unstage-while-published"
	DetachWhileStaged     Rule = "detach-while-staged"
	DetachWhilePublished  Rule = "detach-while-published"
	DeleteWhileAttached   Rule = "delete-while-attached"
	DeleteWhileStaged     Rule = "delete-while-staged"
	TwoNodes              Rule = "single-node-volume-on-two-nodes"
	VolumeContextChanged  Rule = "volume-context-changed"
	PublishContextWrong   Rule = "publish-context-wrong"
	ExpandOrder           Rule = "expansion-in-the-wrong-order"
	RetryTooSoon          Rule = "retry-too-soon"
	SecretMisplaced       Rule = "secret-where-it-does-not-belong"
)

// clauses are what the specification says, in short.
var clauses = map[Rule]string{
	StageBeforeAttach:     "NodeStageVolume: if the plugin has PUBLISH_UNPUBLISH_VOLUME, the CO calls ControllerPublishVolume for the volume and node before",
	PublishBeforeStage:    "NodePublishVolume: if the plugin has STAGE_UNSTAGE_VOLUME, the CO calls NodeStageVolume for the volume before",
	PublishBeforeAttach:   "NodePublishVolume: if the plugin has PUBLISH_UNPUBLISH_VOLUME, the CO calls ControllerPublishVolume for the volume and node before",
	UnstageWhilePublished: "NodeUnstageVolume: it is called after all NodeUnpublishVolume of the volume on the node",
	DetachWhileStaged:     "ControllerUnpublishVolume: it is called after all NodeUnstageVolume and NodeUnpublishVolume on the node",
	DetachWhilePublished:  "ControllerUnpublishVolume: it is called after all NodeUnstageVolume and NodeUnpublishVolume on the node",
	DeleteWhileAttached:   "DeleteVolume: the volume is not in use; the CO calls ControllerUnpublishVolume before",
	DeleteWhileStaged:     "DeleteVolume: the volume is not in use; the CO unpublishes and unstages it before",
	TwoNodes:              "VolumeCapability.AccessMode: a SINGLE_NODE mode is for use on one node at a time",
	VolumeContextChanged:  "Volume.volume_context: the CO passes it unchanged to later calls for the volume",
	PublishContextWrong:   "ControllerPublishVolumeResponse.publish_context: the CO passes it to NodeStageVolume and NodePublishVolume of that node",
	ExpandOrder:           "ControllerExpandVolume, NodeExpandVolume: the controller's half comes first, the node's after the volume is staged or published; OFFLINE expansion is for volumes that are not attached",
	RetryTooSoon:          "Error Scheme: the caller retries with exponential back off",
	SecretMisplaced:       "Secrets Requirements: sensitive values go into fields marked csi_secret only",
}

// Finding is something that a caller should not have done.
type Finding struct {
	Rule Rule
	// What happened, in words.
	What string
	// Call is the call, Earlier the one that it does not agree with; nil where a
	// call is missing.
	Call, Earlier *journal.Entry
}

// Clause is what the specification says.
func (f Finding) Clause() string { return clauses[f.Rule] }

// String is the finding with both calls and the clause.
func (f Finding) String() string {
	earlier := "no call of the kind was made before"
	if f.Earlier != nil {
		earlier = f.Earlier.String()
	}
	return fmt.Sprintf("%s: %s\n  call:    %s\n  earlier: %s\n  clause:  %s", f.Rule, f.What, f.Call, earlier, f.Clause())
}

// Checker keeps what the calls so far say of each volume. It is safe for
// concurrent use; what it keeps of a volume goes when the volume is deleted or, if its creation was not
// seen, when nothing uses it any more.
type Checker struct {
	o Options

	mu      sync.Mutex
	volumes map[string]*volume
	retries map[journal.Subject]retry
	found   []Finding
}

// mostFindings bounds what is kept for Findings.
const mostFindings = 1000

// New makes a checker that has seen no call.
func New(o Options) *Checker {
	if o.MinBackoff == 0 {
		o.MinBackoff = DefaultMinBackoff
	}
	return &Checker{o: o, volumes: map[string]*volume{}, retries: map[journal.Subject]retry{}}
}

// Begin checks a call that begins and returns what is wrong with it.
func (c *Checker) Begin(e *journal.Entry) []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.check(e)
	c.found = append(c.found, found...)
	if extra := len(c.found) - mostFindings; extra > 0 {
		c.found = c.found[extra:]
	}
	return found
}

// End learns from a call that has ended.
func (c *Checker) End(e *journal.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learn(e)
}

// Findings are the latest findings, oldest first.
func (c *Checker) Findings() []Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Finding(nil), c.found...)
}
