// Package conformance is the specification of the Container Storage Interface
// 1.13 as a map of plain test functions over the endpoint of any driver.
//
//	for name, test := range conformance.All() {
//		t.Run(name, func(t *testing.T) { test.Run(t, target) })
//	}
//
// A row calls the driver over gRPC, as an orchestrator would, and knows nothing
// else of it. Rows of what a driver does not advertise are skipped with the
// reason. Whatever a row makes it takes away, also after a failure.
//
// Rows of one driver must not run at the same time: the lists that some of them
// read show what the others make.
package conformance

import (
	"context"
	"fmt"
)

// T is what a row needs of a test; *testing.T and *testing.B are such.
type T interface {
	// Context ends before the functions of Cleanup are called.
	Context() context.Context
	Cleanup(func())
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	// FailNow and Skipf end the calling goroutine.
	FailNow()
	Skipf(format string, args ...any)
}

// Level says how the specification puts a clause.
type Level string

const (
	// Must is a clause with MUST, SHALL or REQUIRED: without it a driver is not
	// compliant.
	Must Level = "must"
	// Should is a clause with SHOULD, or what follows from several clauses.
	Should Level = "should"
)

// Test is one row: a clause of the specification and the calls that show whether
// a driver keeps to it.
type Test struct {
	// Name is what the driver does, in words; unique for an RPC.
	Name string
	// RPC is the method that is tested, as in CreateVolume.
	RPC string
	// Clause is what the specification says, in short.
	Clause string
	// Level is how it says it.
	Level Level
	// Run makes the calls. It must be called on the goroutine of its test.
	Run func(T, *Target)
}

// All returns every row by RPC and name, as in "Probe: answers that it is
// ready". The map is the caller's.
func All() map[string]Test {
	all := map[string]Test{}
	for _, r := range rows() {
		name := r.rpc + ": " + r.name
		if _, twice := all[name]; twice {
			panic(fmt.Sprintf("conformance: two rows are called %q", name))
		}
		all[name] = r.test()
	}
	return all
}

// Ordered returns the rows of All by service and RPC, as the specification has
// them.
func Ordered() []Test {
	var tests []Test
	for _, r := range rows() {
		tests = append(tests, r.test())
	}
	return tests
}

// rows are all rows in the order of the specification.
func rows() []row {
	var all []row
	for _, family := range []func() []row{
		identityRows, capabilityRows, unimplementedRows,
		createRows, createNameRows, createAgainRows, createSizeRows, createSourceRows, topologyRows, deleteRows,
		controllerPublishRows, controllerUnpublishRows, validateRows, listRows,
		healthRows, getVolumeRows, modifyRows, capacityRows,
		snapshotRows, deleteSnapshotRows, listSnapshotRows, getSnapshotRows, snapshotTopologyRows,
		controllerExpandRows, groupRows, groupAnswerRows, metadataRows, metadataErrorRows,
		nodeInfoRows, stageRows, publishRows, publishAgainRows, unpublishRows, statsRows, nodeExpandRows,
		filesystemDataRows, blockDataRows, copyDataRows, growthDataRows,
	} {
		all = append(all, family()...)
	}
	return all
}
