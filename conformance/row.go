package conformance

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// row is a Test before it has a driver.
type row struct {
	rpc    string
	name   string
	clause string
	// level is Must if empty.
	level Level
	// needs are the capabilities without which the row is skipped.
	needs []need
	run   func(*check)
}

func (r row) test() Test {
	level := r.level
	if level == "" {
		level = Must
	}
	return Test{
		Name: r.name, RPC: r.rpc, Clause: r.clause, Level: level,
		Run: func(t T, target *Target) {
			t.Helper()
			c := newCheck(t, target)
			c.need(r.needs...)
			r.run(c)
		},
	}
}

// spoiled is a request that a driver has to refuse.
type spoiled[R proto.Message] struct {
	name   string
	clause string
	// level is Must if empty.
	level Level
	edit  func(R)
	// codes are the codes that the driver may answer; none means
	// INVALID_ARGUMENT.
	codes []codes.Code
}

// refusals makes a row of every way to spoil a good request.
func refusals[R proto.Message](rpc string, needs []need, good func(*check) R, call func(*check, R) error, bad ...spoiled[R]) []row {
	var rows []row
	for _, b := range bad {
		want := b.codes
		if len(want) == 0 {
			want = []codes.Code{codes.InvalidArgument}
		}
		rows = append(rows, row{rpc: rpc, name: b.name, clause: b.clause, level: b.level, needs: needs, run: func(c *check) {
			c.Helper()
			r := proto.CloneOf(good(c))
			b.edit(r)
			c.code(call(c, r), want...)
		}})
	}
	return rows
}

// The clauses of the general error scheme.
const (
	missingField = "a required field is missing: INVALID_ARGUMENT"
	invalidField = "a field has a value that is not allowed: INVALID_ARGUMENT"
	noVolume     = "no volume has this id: NOT_FOUND"
	negative     = "the value must not be negative: INVALID_ARGUMENT"
)
