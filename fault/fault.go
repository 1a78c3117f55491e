// Package fault is the grammar of faults and the injector that decides which of
// them fires in a call.
//
// A fault is a rule: which calls, and what happens to them, one after the other.
//
//	CreateVolume: return(UNAVAILABLE)
//	ControllerPublishVolume{node=node-1}: 2*return(UNAVAILABLE)->1*sleep(3m)->drop->ok
//	Node*{volume=pvc-*}: 10%return(INTERNAL,"the array is on fire")
//	Volume{volume=vol-1}: eio(writes)
//
// The calls are a journal.Match. An action takes the number of calls before its
// star, and a percentage of those that it takes part in; the last action takes all
// that are left, each other one 1 where it has no number. When the chain has come
// to its end, or a percentage spares a call, the next rule has its turn.
//
// The method Volume is none of CSI's: its rule is not about calls, but about the
// bytes of the volumes that it names, from now until it is removed.
package fault

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/journal"
)

// Verb is what an action does.
type Verb string

// What can happen to a call.
const (
	// OK lets the call through, also past later rules.
	OK Verb = "ok"
	// Return answers with a code and does nothing: return(CODE) or
	// return(CODE,"message").
	Return Verb = "return"
	// Sleep delays the call: sleep(3m).
	Sleep Verb = "sleep"
	// Hang holds the call until the fault is removed or the caller gives up.
	Hang Verb = "hang"
	// Drop serves the call and loses its reply: the caller gets UNAVAILABLE, as
	// from a connection that broke.
	Drop Verb = "drop"
	// Crash ends the process at a kill point of the call: crash(array.volume.ready).
	Crash Verb = "crash"
	// Partial fails the call at a kill point, with what was done before undone or
	// left as after any other error: partial(array.volume.filled).
	Partial Verb = "partial"
	// After makes slow progress: after(30s). A snapshot is cut at once, but ready
	// only so long after; other calls about the same thing get ABORTED until then.
	After Verb = "after"
	// Polls is After by the number of calls, polls(3), and for a snapshot by how
	// often it is asked for.
	Polls Verb = "polls"
)

// What can happen to the bytes of a volume (the method Volume).
const (
	// EIO fails reads and writes, eio, or only some: eio(reads), eio(writes),
	// eio(writes,1048576,4096) for a range of bytes.
	EIO Verb = "eio"
	// ReadOnly fails all writes, so that a file system turns itself read-only.
	ReadOnly Verb = "readonly"
	// Full leaves no space behind a part of the volume: full(95%).
	Full Verb = "full"
	// Slow delays each read and write: slow(50ms).
	Slow Verb = "slow"
	// Gone makes the device vanish under its users.
	Gone Verb = "gone"
	// Corrupt changes what is read from a range: corrupt(4096,512).
	Corrupt Verb = "corrupt"
	// Heal ends all faults of the volume that can be ended.
	Heal Verb = "heal"
	// Health makes the volume report a condition: health(DEGRADED,"SlowDisk").
	Health Verb = "health"
)

// VolumeMethod is the method of rules about the bytes of volumes.
const VolumeMethod = "Volume"

// Rule is a fault. It is not to be changed once it was given to an Injector.
type Rule struct {
	Match journal.Match
	// Chain has at least one action.
	Chain []Action

	// confined limits it to one volume: see Confine.
	confined *subject
}

// subject is the volume that a rule is confined to.
type subject struct{ name, id string }

// Confine is the rule for the volume with a name alone, whatever its match says:
// for the call that makes it and, once Injector.Identify has told its id, for all
// calls about it.
func (r Rule) Confine(name string) Rule {
	r.confined = &subject{name: name}
	return r
}

// means reports whether a rule is about a call.
func (r Rule) means(e *journal.Entry) bool {
	if s := r.confined; s != nil {
		made := e.Method == "CreateVolume" && e.Name == s.name
		if !made && (s.id == "" || e.Volume != s.id) {
			return false
		}
	}
	return r.Match.Matches(e)
}

// Action is one link of a chain.
type Action struct {
	// Count is how many calls it takes; 0 means all that are left, for the last
	// action only.
	Count int
	// Percent is how many of a hundred of them, by chance, it takes part in; 0
	// means all.
	Percent float64
	Verb    Verb

	// Code and Message are those of Return.
	Code    codes.Code
	Message string
	// Duration is that of Sleep, After and Slow.
	Duration time.Duration
	// Polls is the number of Polls.
	Polls int
	// Step is the kill point of Crash and Partial.
	Step string
	// Only is "reads", "writes" or "" for both, of EIO.
	Only string
	// Offset and Length are a range in bytes, of EIO and Corrupt; a Length of 0
	// is everything.
	Offset, Length int64
	// Level is the percentage of Full.
	Level float64
	// Status and Reason are those of Health.
	Status, Reason string
}

// AboutBytes is true for rules about the bytes of volumes.
func (r Rule) AboutBytes() bool { return r.Match.Method == VolumeMethod }

// String is the rule in the form that Parse reads.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Match.String())
	b.WriteString(": ")
	for i, a := range r.Chain {
		if i > 0 {
			b.WriteString("->")
		}
		b.WriteString(a.text(i == len(r.Chain)-1))
	}
	return b.String()
}

// String is the action in the form that Parse reads.
func (a Action) String() string { return a.text(true) }

func (a Action) text(last bool) string {
	var b strings.Builder
	switch {
	case a.Count > 1 || (a.Count == 1 && last):
		fmt.Fprintf(&b, "%d*", a.Count)
	}
	if a.Percent > 0 {
		b.WriteString(percent(a.Percent))
	}
	b.WriteString(string(a.Verb))
	if args := a.args(); len(args) > 0 {
		b.WriteString("(" + strings.Join(args, ",") + ")")
	}
	return b.String()
}

func percent(p float64) string { return strconv.FormatFloat(p, 'f', -1, 64) + "%" }

func (a Action) args() []string {
	switch a.Verb {
	case Return:
		if a.Message != "" {
			return []string{journal.CodeName(a.Code), strconv.Quote(a.Message)}
		}
		return []string{journal.CodeName(a.Code)}
	case Sleep, After, Slow:
		return []string{a.Duration.String()}
	case Polls:
		return []string{strconv.Itoa(a.Polls)}
	case Crash, Partial:
		return []string{a.Step}
	case Full:
		return []string{percent(a.Level)}
	case Corrupt:
		return []string{strconv.FormatInt(a.Offset, 10), strconv.FormatInt(a.Length, 10)}
	case Health:
		return []string{a.Status, strconv.Quote(a.Reason)}
	case EIO:
		var args []string
		if a.Only != "" {
			args = append(args, a.Only)
		}
		if a.Length > 0 {
			args = append(args, strconv.FormatInt(a.Offset, 10), strconv.FormatInt(a.Length, 10))
		}
		return args
	}
	return nil
}
