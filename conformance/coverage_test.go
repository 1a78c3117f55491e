package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/conformance"
)

var update = flag.Bool("update", false, "write the coverage page anew")

// coveragePage is made from the rows, so that it cannot say more than is tested.
const coveragePage = "../docs/coverage.md"

// TestCoveragePage keeps the page of what is tested true: each RPC of the
// specification, each behaviour, and the test that proves it.
func TestCoveragePage(t *testing.T) {
	t.Parallel()
	page := coverage()
	if *update {
		require.NoError(t, os.WriteFile(coveragePage, []byte(page), 0o644))
	}
	have, err := os.ReadFile(coveragePage)
	require.NoError(t, err)
	require.True(t, page == string(have), "the page is old: run go test ./conformance -run CoveragePage -update")
}

// TestEveryRPCIsCovered holds the rows against the specification's own list.
func TestEveryRPCIsCovered(t *testing.T) {
	t.Parallel()
	rows := map[string]int{}
	for _, test := range conformance.Ordered() {
		rows[test.RPC]++
	}
	for _, rpc := range methods() {
		require.Positive(t, rows[rpc], rpc)
	}
}

// methods are the RPCs of the specification in its order.
func methods() []string {
	var names []string
	services := csi.File_csi_proto.Services()
	for i := range services.Len() {
		for j, all := 0, services.Get(i).Methods(); j < all.Len(); j++ {
			names = append(names, string(all.Get(j).Name()))
		}
	}
	return names
}

// beyond are the tests of csiemu's own driver for what no row can show.
var beyond = []struct{ behaviour, proof string }{
	{"killed at every step of every call, and again at every step of the start: nothing is lost or left behind", "emulator/crash: TestEveryKillPoint"},
	{"failed at every step of every call: undone, or finished by the retry", "emulator/crash: TestEveryFailure"},
	{"killed at random under eight clients", "emulator/crash: TestKillsAtRandom"},
	{"a full disk at every write; damaged, foreign and missing records; a deleted image; two processes on one directory; a clock that jumps", "emulator/crash"},
	{"every answer to many concurrent clients is one that some order of their calls gives", "emulator/model"},
	{"ten thousand volumes, two thousand devices: the cost of a call does not grow with the count", "emulator/scale"},
	{"any request of any RPC: no panic, a code of the specification, no details", "emulator/fuzzing: FuzzDriver"},
	{"a group snapshot keeps the order of writes across volumes", "emulator: TestGroupSnapshotKeepsTheOrderOfWritesAcrossVolumes, TestGroupSnapshotOfBreakableRawBlockKeepsTheOrderOfWrites"},
	{"base and changed blocks make the target, on stores with and without reflink", "emulator: metadata_linux_test.go"},
	{"iops, throughput and latency are felt by who reads the device", "emulator: TestModifyVolumeShapesItsIO"},
	{"a class demands secrets for each RPC that can carry them, and they are nowhere afterwards", "emulator: TestClassDemandsSecrets"},
	{"older orchestrators read VolumeCondition", "emulator: TestOlderOrchestratorsReadVolumeCondition"},
	{"the specs of csi-sanity, mount and block, on every backend", "emulator/sanity: TestSanity"},
}

func coverage() string {
	var b strings.Builder
	tests := conformance.Ordered()
	fmt.Fprintf(&b, "# What is tested\n\nGenerated from the tests by `go test ./conformance -run CoveragePage -update`. The rows are those of "+
		"`csiemu conform`, %d for %d RPCs; each runs against every backend in `conformance` (a row that a backend cannot have says why) "+
		"and against any other driver by [conformance.md](conformance.md).\n", len(tests), len(methods()))
	byRPC := map[string][]conformance.Test{}
	for _, test := range tests {
		byRPC[test.RPC] = append(byRPC[test.RPC], test)
	}
	for _, rpc := range methods() {
		fmt.Fprintf(&b, "\n## %s\n\n| Behaviour | Clause | |\n|---|---|---|\n", rpc)
		for _, test := range byRPC[rpc] {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(test.Name), cell(test.Clause), test.Level)
		}
	}
	b.WriteString("\n## Beyond the rows\n\n| Behaviour | Proof |\n|---|---|\n")
	for _, row := range beyond {
		fmt.Fprintf(&b, "| %s | %s |\n", cell(row.behaviour), row.proof)
	}
	return b.String()
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
