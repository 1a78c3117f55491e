// Package journal remembers what was called: every CSI call with its request and
// reply, without secrets, in a bounded ring, and finds calls in it for assertions.
//
// An entry is written when a call begins and again when it ends, so that a call
// that hangs can be seen. Entries are never changed once they can be read; all
// methods are safe for concurrent use, and none of the waiting ones needs a clock,
// so a journal works inside testing/synctest.
package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csiemu/csiemu/journal/redact"
)

// DefaultCapacity is how many entries a journal keeps.
const DefaultCapacity = 10_000

// Options describe a journal. The zero value is usable.
type Options struct {
	// Capacity is how many entries are kept; 0 means DefaultCapacity. Older ones
	// are dropped, and counted.
	Capacity int
	// Lines receives each call as a line of JSON when it ends; nil for none. It
	// is written to by one goroutine at a time, for which the calls wait. The first error ends it; see Err.
	Lines io.Writer
}

// Journal is a ring of entries.
type Journal struct {
	lines *lines

	mu sync.Mutex
	// ring has room for the newest entries; that of sequence number n is at n
	// modulo its length.
	ring []*Entry
	// last is the sequence number of the newest entry, the first being 1.
	last uint64
	// cleared is the sequence number of the newest entry that Clear dropped.
	cleared uint64
	// changed is closed, and replaced, when an entry is written; nil while
	// nobody waits.
	changed chan struct{}
	// failed counts the attempts so far of calls whose last attempt failed.
	failed map[Subject]attempts
}

type attempts struct {
	n   int
	seq uint64
}

// New makes a journal.
func New(o Options) *Journal {
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	j := &Journal{ring: make([]*Entry, o.Capacity), failed: map[Subject]attempts{}}
	if o.Lines != nil {
		j.lines = &lines{to: json.NewEncoder(o.Lines)}
	}
	return j
}

// Open is an entry of a call that has not ended. It belongs to the goroutine of
// the call.
type Open struct {
	journal *Journal
	entry   *Entry
	// first is what entry points to until it is replaced.
	first Entry
}

// Begin enters a call. method is its full name, such as
// /csi.v1.Controller/CreateVolume, node the node that serves it or "". The request
// must not be changed from here on.
func (j *Journal) Begin(method, node string, request proto.Message) *Open {
	o := &Open{journal: j, first: Entry{Time: time.Now(), Method: shortName(method), FullMethod: method, Node: node, Request: redact.Message(request)}}
	e := &o.first
	o.entry = e
	e.identify(request)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Seq = j.last
	e.Attempt = j.failed[e.Subject()].n + 1
	j.ring[e.Seq%uint64(len(j.ring))] = e
	j.wake()
	return o
}

// Adopt enters a call that another journal has already, as one of this one.
func (j *Journal) Adopt(of *Entry) *Open {
	e := *of
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Seq = j.last
	e.Attempt = j.failed[e.Subject()].n + 1
	j.ring[e.Seq%uint64(len(j.ring))] = &e
	j.wake()
	return &Open{journal: j, entry: &e}
}

// EndAs is End for a call of Adopt, with how it ended there.
func (o *Open) EndAs(of *Entry) {
	next := *o.entry
	next.Done, next.Duration, next.Code, next.Error, next.Reply = true, of.Duration, of.Code, of.Error, of.Reply
	if of.Fault != "" {
		next.Fault = of.Fault
	}
	o.replace(&next)
	o.journal.lines.write(&next)
}

// Fault says which fault fired in the call.
func (o *Open) Fault(text string) {
	next := *o.entry
	next.Fault = text
	o.replace(&next)
}

// Find adds what the checker of the caller found in the call.
func (o *Open) Find(finding string) {
	next := *o.entry
	next.Findings = append(next.Findings[:len(next.Findings):len(next.Findings)], finding)
	o.replace(&next)
}

// End enters how a call ended: its reply, or the error of its status.
func (o *Open) End(reply proto.Message, err error) {
	next := o.Ended(reply, err)
	o.replace(next)
	o.journal.lines.write(next)
}

// Ended is what the entry will be when the call ends so; nothing is entered.
func (o *Open) Ended(reply proto.Message, err error) *Entry {
	next := *o.entry
	next.Done, next.Duration = true, time.Since(next.Time)
	if err != nil {
		s := status.Convert(err)
		next.Code, next.Error = s.Code(), s.Message()
	} else if reply != nil {
		next.Reply = redact.Message(reply)
		next.learn(reply)
	}
	return &next
}

// Entry is the entry as it is now.
func (o *Open) Entry() *Entry { return o.entry }

func (o *Open) replace(next *Entry) {
	o.entry = next
	j := o.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if next.Seq > j.gone() {
		j.ring[next.Seq%uint64(len(j.ring))] = next
	}
	if next.Done {
		j.count(next)
	}
	j.wake()
}

// count keeps account of attempts. Those whose entries are long gone are
// forgotten when there are too many.
func (j *Journal) count(e *Entry) {
	k := e.Subject()
	if e.Code == codes.OK {
		delete(j.failed, k)
		return
	}
	j.failed[k] = attempts{e.Attempt, e.Seq}
	if len(j.failed) <= 2*len(j.ring) {
		return
	}
	for k, a := range j.failed {
		if j.last-a.seq >= uint64(len(j.ring)) {
			delete(j.failed, k)
		}
	}
}

func (j *Journal) wake() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// Entries returns the entries behind the one with a sequence number (0 for all that
// are kept), oldest first, those of calls that have not ended included.
func (j *Journal) Entries(after uint64) []*Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries(after)
}

func (j *Journal) entries(after uint64) []*Entry {
	if after >= j.last {
		return nil
	}
	first := max(after, j.gone()) + 1
	if first > j.last {
		return nil
	}
	all := make([]*Entry, 0, j.last-first+1)
	for seq := first; seq <= j.last; seq++ {
		all = append(all, j.ring[seq%uint64(len(j.ring))])
	}
	return all
}

// Dropped is how many entries there is no room for any more.
func (j *Journal) Dropped() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.dropped()
}

func (j *Journal) dropped() uint64 {
	if n := uint64(len(j.ring)); j.last > n {
		return j.last - n
	}
	return 0
}

// gone is the sequence number of the newest entry that is not kept.
func (j *Journal) gone() uint64 { return max(j.dropped(), j.cleared) }

// Clear drops all entries and what is known of attempts. Sequence numbers go on.
func (j *Journal) Clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.failed)
	clear(j.ring)
	j.cleared = j.last
	j.wake()
}

// Follow yields the entries behind a sequence number as their calls end, until ctx
// ends. A reader that is slower than the calls misses what is dropped meanwhile.
func (j *Journal) Follow(ctx context.Context, after uint64) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		// pending are calls that had not ended when they were passed.
		pending := map[uint64]bool{}
		for {
			j.mu.Lock()
			fresh := j.entries(after)
			var ended []*Entry
			for seq := range pending {
				if e := j.at(seq); e == nil || e.Done {
					delete(pending, seq)
					ended = append(ended, e)
				}
			}
			var changed chan struct{}
			if len(fresh) == 0 && len(ended) == 0 {
				changed = j.waiting()
			}
			j.mu.Unlock()
			for _, e := range fresh {
				after = e.Seq
				if !e.Done {
					pending[e.Seq] = true
					continue
				}
				ended = append(ended, e)
			}
			for _, e := range ended {
				if e != nil && !yield(e) {
					return
				}
			}
			if changed == nil {
				if ctx.Err() != nil {
					return
				}
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// at is the entry with a sequence number, nil if it is not kept.
func (j *Journal) at(seq uint64) *Entry {
	if seq == 0 || seq > j.last || seq <= j.gone() {
		return nil
	}
	return j.ring[seq%uint64(len(j.ring))]
}

// waiting is closed at the next change.
func (j *Journal) waiting() chan struct{} {
	if j.changed == nil {
		j.changed = make(chan struct{})
	}
	return j.changed
}

// Wait waits until n calls that match have ended, counting those that ended before,
// and returns them. The error names what was there when ctx ended.
func (j *Journal) Wait(ctx context.Context, m Match, n int) ([]*Entry, error) {
	for {
		j.mu.Lock()
		found := matching(j.entries(0), m)
		changed := j.waiting()
		j.mu.Unlock()
		if len(found) >= n {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return found, fmt.Errorf("wait for %d calls of %s, %d have ended: %w%s", n, m, len(found), context.Cause(ctx), misses(j.Entries(0), m))
		}
	}
}

func matching(entries []*Entry, m Match) []*Entry {
	var found []*Entry
	for _, e := range entries {
		if e.Done && m.Matches(e) {
			found = append(found, e)
		}
	}
	return found
}

// Count is how many calls that match have ended.
func (j *Journal) Count(m Match) int { return len(matching(j.Entries(0), m)) }

// Err is the error that ended the writing of Options.Lines, or nil.
func (j *Journal) Err() error { return j.lines.failed() }

// lines writes entries as lines of JSON.
type lines struct {
	mu  sync.Mutex
	to  *json.Encoder
	err error
}

func (l *lines) write(e *Entry) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.to.Encode(e)
	}
}

func (l *lines) failed() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return fmt.Errorf("write the journal: %w", l.err)
	}
	return nil
}
