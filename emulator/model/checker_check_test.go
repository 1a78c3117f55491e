package model_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// register is the model of one number: a request with a value writes it, one
// without reads what the reply says, or nothing.
func register(s *int64, o *operation) *int64 {
	if w, ok := o.request.(*wrapperspb.Int64Value); ok {
		if w.GetValue() == *s {
			return s
		}
		return new(w.GetValue())
	}
	if o.reply == nil || o.reply.(*wrapperspb.Int64Value).GetValue() == *s {
		return s
	}
	return nil
}

func write(call, end, value int64) *operation {
	return &operation{call: call, end: end, request: wrapperspb.Int64(value)}
}

func read(call, end, value int64) *operation {
	return &operation{call: call, end: end, harmless: true, request: &wrapperspb.BoolValue{}, reply: wrapperspb.Int64(value)}
}

func ask(call, end int64) *operation {
	return &operation{call: call, end: end, harmless: true, request: &wrapperspb.BoolValue{}}
}

func giveUp(call, end, value int64) *operation {
	o := write(call, end, value)
	o.lost = true
	return o
}

func TestChecker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		history []*operation
		want    bool
	}{
		"nothing":                                                {nil, true},
		"a read of what was written":                             {[]*operation{write(1, 2, 7), read(3, 4, 7)}, true},
		"a read of what was overwritten":                         {[]*operation{write(1, 2, 7), write(3, 4, 8), read(5, 6, 7)}, false},
		"a read during a write, old":                             {[]*operation{write(1, 4, 7), read(2, 3, 0)}, true},
		"a read during a write, new":                             {[]*operation{write(1, 4, 7), read(2, 3, 7)}, true},
		"new, then old, during one write":                        {[]*operation{write(1, 6, 7), read(2, 3, 7), read(4, 5, 0)}, false},
		"two writes at once, the second first":                   {[]*operation{write(1, 4, 7), write(2, 3, 8), read(5, 6, 7)}, true},
		"a value that nobody wrote":                              {[]*operation{write(1, 2, 7), read(3, 4, 9)}, false},
		"a write that does nothing is kept for later":            {[]*operation{write(1, 8, 0), write(2, 3, 7), read(4, 5, 7), read(6, 7, 0)}, true},
		"a lost write that happened":                             {[]*operation{giveUp(1, 2, 7), read(3, 4, 0), read(5, 6, 7)}, false},
		"a lost write that happened late":                        {[]*operation{giveUp(1, 9, 7), read(3, 4, 0), read(5, 6, 7)}, true},
		"a lost write that never happened":                       {[]*operation{giveUp(1, 9, 7), read(3, 4, 0), read(5, 6, 0)}, true},
		"a lost write that ended before a call that fits anyway": {[]*operation{giveUp(1, 2, 7), ask(3, 4), read(5, 6, 7)}, true},
		"a lost write that ended and never happened":             {[]*operation{giveUp(1, 2, 7), ask(3, 4), read(5, 6, 0)}, true},
		"a lost write that happened and did not":                 {[]*operation{giveUp(1, 9, 7), read(3, 4, 7), read(5, 6, 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, _ := linearizable(new(int64(0)), c.history, register, func(s *int64) string { return strconv.FormatInt(*s, 10) })
			require.Equal(t, c.want, ok)
		})
	}
}
