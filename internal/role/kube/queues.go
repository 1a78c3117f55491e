package kube

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/csiemu/csiemu/internal/role/metrics"
)

// QueueMetrics are the metrics of work queues that all Kubernetes components have,
// by the queue's name. They are given to each queue (TypedRateLimitingQueueConfig),
// as the global provider is one for the whole process.
type QueueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*QueueMetrics)(nil)

// NewQueueMetrics registers the metrics; those that are registered already are
// shared. A nil registerer registers nowhere.
func NewQueueMetrics(registerer prometheus.Registerer) (*QueueMetrics, error) {
	const subsystem = "workqueue"
	name := []string{"name"}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: metric, Help: help}, name)
	}
	counter := func(metric, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: metric, Help: help}, name)
	}
	histogram := func(metric, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: metric, Help: help, Buckets: prometheus.ExponentialBuckets(10e-9, 10, 12),
		}, name)
	}
	m := &QueueMetrics{
		depth:      gauge("depth", "How many items wait in the queue."),
		unfinished: gauge("unfinished_work_seconds", "How long all items under way have been so, together."),
		longest:    gauge("longest_running_processor_seconds", "How long the oldest item under way has been so."),
		adds:       counter("adds_total", "How many items were added to the queue."),
		retries:    counter("retries_total", "How many items were tried again."),
		latency:    histogram("queue_duration_seconds", "How long items waited in the queue."),
		work:       histogram("work_duration_seconds", "How long items took."),
	}
	return m, errors.Join(
		share(registerer, &m.depth), share(registerer, &m.unfinished), share(registerer, &m.longest),
		share(registerer, &m.adds), share(registerer, &m.retries), share(registerer, &m.latency), share(registerer, &m.work))
}

// share is metrics.Share in place.
func share[C prometheus.Collector](registerer prometheus.Registerer, metric *C) (err error) {
	*metric, err = metrics.Share(registerer, *metric)
	return err
}

// NewDepthMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

// NewAddsMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

// NewLatencyMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

// NewWorkDurationMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.work.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

// NewRetriesMetric is workqueue.MetricsProvider.
func (m *QueueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
