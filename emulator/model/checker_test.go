package model_test

import (
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// operation is one call with its answer.
type operation struct {
	client int
	// node is the node that was called; empty for the array.
	node    string
	request proto.Message
	// reply is nil unless the code is OK.
	reply proto.Message
	code  codes.Code
	says  string
	// lost is set when the caller gave up: the call may have had its effect, or
	// may have it later, or never.
	lost bool
	// harmless is set for a call that changes nothing in any state: one that
	// was refused, or only reads.
	harmless bool
	// call and end are times of one clock. Between them the call took effect.
	call, end int64
}

// stepper is a model: it returns the state after an operation, the same one if
// the operation changes nothing, and nil if the operation cannot have been
// answered so in that state.
type stepper[S comparable] func(S, *operation) S

// checker looks for an order of a history that the model agrees with, as Wing
// and Gong do ("Testing and Verifying Concurrent Objects"), with Lowe's memory
// of positions that were tried.
type checker[S comparable] struct {
	step    stepper[S]
	key     func(S) string
	history []*operation
	tried   map[position]bool
	// furthest is the end of the longest order that was found.
	furthest stuck[S]
}

// stuck is the end of an order that cannot be continued.
type stuck[S comparable] struct {
	state S
	// done are the operations that are in order.
	done  mask
	count int
	// deadline is when the next one must have begun.
	deadline int64
}

// position is which operations were put in order, and the state after them.
type position struct {
	done  mask
	state string
}

// mask is a set of indexes into a history.
type mask [8]uint64

// longest is how many operations a history may have.
const longest = 64 * len(mask{})

func (m *mask) add(i int)      { m[i/64] |= 1 << (i % 64) }
func (m *mask) has(i int) bool { return m[i/64]>>(i%64)&1 == 1 }

// linearizable reports whether there is an order, and if not how far one got.
func linearizable[S comparable](initial S, history []*operation, step stepper[S], key func(S) string) (ok bool, furthest stuck[S]) {
	if len(history) > longest {
		panic("the history is too long")
	}
	c := &checker[S]{step: step, key: key, history: history, tried: map[position]bool{}, furthest: stuck[S]{count: -1}}
	ok = c.search(mask{}, 0, initial)
	return ok, c.furthest
}

// search tries to put the rest of the history in order. count is how many are
// in order already.
func (c *checker[S]) search(done mask, count int, s S) bool {
	done, count, deadline := c.settle(done, count, s)
	if count > c.furthest.count {
		c.furthest = stuck[S]{state: s, done: done, count: count, deadline: deadline}
	}
	if deadline == math.MaxInt64 {
		return true // what is left was lost, and need not have happened
	}
	at := position{done, c.key(s)}
	if c.tried[at] {
		return false
	}
	c.tried[at] = true
	for i, o := range c.history {
		if done.has(i) || !c.mayBeNext(done, o, deadline) {
			continue
		}
		var none S
		next := c.step(s, o)
		if next == none || (o.lost && next == s) {
			continue
		}
		with := done
		with.add(i)
		if c.search(with, count+1, next) {
			return true
		}
	}
	return false
}

// settle puts in order what may come next and is harmless: nothing is lost by
// having it early, unless a lost call ended before it began, which would have to
// come first if it happened. It also returns when the first of the others ended,
// before which the next one must have begun.
func (c *checker[S]) settle(done mask, count int, s S) (mask, int, int64) {
	for {
		deadline, before := c.deadline(done), count
		early := min(deadline, c.lostUntil(done))
		for i, o := range c.history {
			if !done.has(i) && o.harmless && o.call < early && c.step(s, o) == s {
				done.add(i)
				count++
			}
		}
		if count == before {
			return done, count, deadline
		}
	}
}

// deadline is when the first operation that is not in order, and was answered,
// ended.
func (c *checker[S]) deadline(done mask) int64 {
	first := int64(math.MaxInt64)
	for i, o := range c.history {
		if !done.has(i) && !o.lost {
			first = min(first, o.end)
		}
	}
	return first
}

// lostUntil is when the first lost operation that is not in order ended.
func (c *checker[S]) lostUntil(done mask) int64 {
	first := int64(math.MaxInt64)
	for i, o := range c.history {
		if !done.has(i) && o.lost {
			first = min(first, o.end)
		}
	}
	return first
}

// mayBeNext says whether time lets an operation be the next: nothing that is in
// order began after its end.
func (c *checker[S]) mayBeNext(done mask, o *operation, deadline int64) bool {
	if o.call >= deadline {
		return false
	}
	if !o.lost {
		return true
	}
	for i, other := range c.history {
		if done.has(i) && other.call > o.end {
			return false
		}
	}
	return true
}
