package driver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/csiemu/csiemu/internal/role/metrics"
)

// operations is the metric that all CSI sidecars have; nil counts nothing. Its
// name, labels and buckets are those of csi-lib-utils, so that dashboards fit.
type operations struct{ seconds *prometheus.HistogramVec }

func register(registerer prometheus.Registerer) (*operations, error) {
	if registerer == nil {
		return nil, nil
	}
	seconds, err := metrics.Share(registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Subsystem: "csi_sidecar", Name: "operations_seconds",
		Help:    "Duration of calls of the CSI driver, with their gRPC status code.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code", "migrated"}))
	if err != nil {
		return nil, fmt.Errorf("register csi_sidecar_operations_seconds: %w", err)
	}
	return &operations{seconds}, nil
}

func (o *operations) observe(ctx context.Context, driver, method string, took time.Duration, err error) {
	if o != nil {
		migrated, _ := ctx.Value(migratedKey{}).(string)
		o.seconds.WithLabelValues(driver, method, status.Code(err).String(), migrated).Observe(took.Seconds())
	}
}

type migratedKey struct{}

// WithMigrated has the metric say of a call whether it is for a volume that was
// migrated from a plugin of Kubernetes itself. Of a driver that replaces none nothing
// should be said: an empty label is none.
func WithMigrated(ctx context.Context, migrated bool) context.Context {
	return context.WithValue(ctx, migratedKey{}, strconv.FormatBool(migrated))
}
