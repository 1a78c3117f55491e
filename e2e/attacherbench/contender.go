package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/csiemu/csiemu/e2e/programs"
)

// contender is something that attaches.
type contender struct {
	name string
	// command is the program and its flags; none for the bare client.
	command []string
	// slow says that it is given fewer VolumeAttachments: with all of them it
	// would take minutes.
	slow bool
	// finalized says that the volumes have its finalizer already.
	finalized bool
}

// published are settings of external-attacher that projects recommend or ship.
var published = []struct{ name, flags string }{
	// The driver's FAQ on scaling.
	{"AWS EBS", "--worker-threads=100 --kube-api-qps=20 --kube-api-burst=100 --timeout=60s"},
	// OpenShift's operator for the driver.
	{"Azure Disk", "--worker-threads=1000 --kube-api-qps=200 --kube-api-burst=400 --timeout=1200s"},
	// The driver's manifests.
	{"vSphere", "--worker-threads=100 --kube-api-qps=100 --kube-api-burst=100 --timeout=300s"},
	// The change of external-attacher that brought the flags measured so.
	{"64 threads", "--worker-threads=64 --kube-api-qps=100 --kube-api-burst=100"},
	// The driver's manifests for disks.
	{"Alibaba disk", "--worker-threads=1200 --kube-api-qps=1000 --kube-api-burst=2000"},
}

func contenders(csiemu string) []contender {
	theirs, _ := programs.Path("csi-attacher") // a missing one is said when it is started
	ours := []string{csiemu, "attacher"}
	all := []contender{
		{name: "bare client"},
		{name: "bare client, finalizers there", finalized: true},
		{name: "csiemu, defaults", command: ours},
		{name: "csiemu, defaults, finalizers there", command: ours, finalized: true},
		{name: "csiemu, strict", command: append(ours[:2:2], "--strict")},
		{name: "external-attacher, defaults", command: []string{theirs}, slow: true},
	}
	for _, p := range published {
		all = append(all, contender{name: "external-attacher, " + p.name, command: append([]string{theirs}, strings.Fields(p.flags)...)})
	}
	return all
}

func durations(list string) ([]time.Duration, error) {
	var all []time.Duration
	for text := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("read -latencies: %w", err)
		}
		all = append(all, d)
	}
	return all, nil
}
