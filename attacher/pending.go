package attacher

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pending counts what is to be done, when it is asked: also what waits for its next
// attempt or for the driver, which is in no queue (kubernetes-csi/
// external-attacher#706).
type pending struct {
	each        func(func(*attachment))
	count, late *prometheus.Desc
}

var _ prometheus.Collector = (*pending)(nil)

// countPending registers the collector.
func (c *controller) countPending() (unregister func(), err error) {
	if c.Metrics == nil {
		return func() {}, nil
	}
	driver := prometheus.Labels{"driver_name": c.name}
	p := &pending{
		each:  c.each,
		count: prometheus.NewDesc("csiemu_attacher_pending", "How many VolumeAttachments are to be attached or detached.", []string{"operation"}, driver),
		late:  prometheus.NewDesc("csiemu_attacher_oldest_pending_seconds", "How long the oldest of them has been so.", []string{"operation"}, driver),
	}
	if err := c.Metrics.Register(p); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return func() { c.Metrics.Unregister(p) }, nil
}

// Describe is prometheus.Collector.
func (p *pending) Describe(to chan<- *prometheus.Desc) { to <- p.count; to <- p.late }

// Collect is prometheus.Collector.
func (p *pending) Collect(to chan<- prometheus.Metric) {
	counts, oldest := map[string]int{}, map[string]int64{}
	p.each(func(a *attachment) {
		if !a.wants() {
			return
		}
		operation := "attach"
		if a.deleting {
			operation = "detach"
		}
		counts[operation]++
		if first, some := oldest[operation]; !some || a.since < first {
			oldest[operation] = a.since
		}
	})
	for _, operation := range []string{"attach", "detach"} {
		late := 0.0
		if since, some := oldest[operation]; some {
			late = max(0, time.Since(time.Unix(since, 0)).Seconds())
		}
		to <- prometheus.MustNewConstMetric(p.count, prometheus.GaugeValue, float64(counts[operation]), operation)
		to <- prometheus.MustNewConstMetric(p.late, prometheus.GaugeValue, late, operation)
	}
}
