package admin

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/journal"
)

// metrics are what Prometheus reads. Names and labels about operations are those
// of the kubelet and the CSI sidecars.
type metrics struct {
	http.Handler
	driver     string
	operations *prometheus.HistogramVec
	fired      *prometheus.CounterVec
	findings   prometheus.Counter
}

// buckets are the kubelet's for CSI operations, and finer ones below: calls that
// move no bytes take milliseconds.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}

func newMetrics(o Options) *metrics {
	m := &metrics{
		driver: o.Driver,
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_operations_seconds", Help: "How long CSI calls took.", Buckets: buckets,
		}, []string{"driver_name", "method_name", "grpc_status_code"}),
		fired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csiemu_faults_fired_total", Help: "CSI calls to which a fault did something.",
		}, []string{"method_name"}),
		findings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csiemu_findings_total", Help: "What the checker of the caller found in CSI calls.",
		}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.operations, m.fired, m.findings, newState(o))
	m.Handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// follow counts the calls that end, until ctx ends.
func (m *metrics) follow(ctx context.Context, j *journal.Journal) {
	for e := range j.Follow(ctx, 0) {
		m.operations.WithLabelValues(m.driver, e.FullMethod, e.Code.String()).Observe(e.Duration.Seconds())
		if e.Fault != "" {
			m.fired.WithLabelValues(e.FullMethod).Inc()
		}
		m.findings.Add(float64(len(e.Findings)))
	}
}

// state are the metrics that are looked up when they are asked for.
type state struct {
	o                                                  Options
	volumes, snapshots, attachments, faults            *prometheus.Desc
	poolBytes, poolUsed, dropped, unhealthy, buildInfo *prometheus.Desc
}

func newState(o Options) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("csiemu_"+name, help, labels, nil)
	}
	return &state{
		o:           o,
		volumes:     desc("volumes", "Volumes of the array.", "pool"),
		unhealthy:   desc("volumes_unhealthy", "Volumes with which something is wrong."),
		snapshots:   desc("snapshots", "Snapshots of the array."),
		attachments: desc("attachments", "Volumes attached to a node.", "node"),
		faults:      desc("faults", "Faults that are there, spent ones included."),
		poolBytes:   desc("pool_bytes", "Size of a capacity pool.", "pool"),
		poolUsed:    desc("pool_volume_bytes", "Size of all volumes of a capacity pool.", "pool"),
		dropped:     desc("journal_dropped_total", "Calls that the journal has no room for any more."),
		buildInfo:   desc("build_info", "The version, with the value 1.", "version"),
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.volumes, s.unhealthy, s.snapshots, s.attachments, s.faults, s.poolBytes, s.poolUsed, s.dropped, s.buildInfo,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *state) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(s.buildInfo, 1, emulator.Version())
	gauge(s.faults, float64(len(s.o.Emulator.Faults())))
	to <- prometheus.MustNewConstMetric(s.dropped, prometheus.CounterValue, float64(s.o.Emulator.Journal().Dropped()))
	for pool, size := range s.o.Pools {
		gauge(s.poolBytes, float64(size), pool)
	}

	volumes, err := s.o.Emulator.Volumes(context.Background())
	if err != nil {
		to <- prometheus.NewInvalidMetric(s.volumes, err)
		return
	}
	count, used, sick := map[string]int{}, map[string]int64{}, 0
	for pool := range s.o.Pools {
		count[pool], used[pool] = 0, 0
	}
	for _, v := range volumes {
		count[v.Pool]++
		used[v.Pool] += v.SizeBytes
		if len(v.Health) > 0 {
			sick++
		}
	}
	for pool, n := range count {
		gauge(s.volumes, float64(n), pool)
		gauge(s.poolUsed, float64(used[pool]), pool)
	}
	gauge(s.unhealthy, float64(sick))

	snapshots := s.o.Emulator.Snapshots()
	gauge(s.snapshots, float64(len(snapshots)))

	attachments := s.o.Emulator.Attachments()
	byNode := map[string]int{}
	for _, n := range s.o.Emulator.Nodes() {
		byNode[n.Name] = 0
	}
	for _, a := range attachments {
		byNode[a.Node]++
	}
	for node, n := range byNode {
		gauge(s.attachments, float64(n), node)
	}
}
