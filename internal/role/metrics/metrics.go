// Package metrics lets the parts of a process share metrics.
package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Share registers a metric and returns it, or the one that was registered before
// under its name. A nil registerer registers nowhere. It fails when something else
// has the name.
func Share[C prometheus.Collector](registerer prometheus.Registerer, metric C) (C, error) {
	if registerer == nil {
		return metric, nil
	}
	err := registerer.Register(metric)
	if already, is := errors.AsType[prometheus.AlreadyRegisteredError](err); is {
		if known, same := already.ExistingCollector.(C); same {
			return known, nil
		}
	}
	return metric, err
}
