package registrar

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csiemu/csiemu/internal/role/endpoint"
)

// endpoint is what the registrar tells over HTTP. It is healthy while its socket, once
// offered, is in place; a driver or a kubelet that is missing makes it not ready, as a
// restart of the registrar would not help.
func (r *reporter) endpoint() endpoint.Config {
	return endpoint.Config{
		Address: r.c.HTTPEndpoint,
		Healthy: []endpoint.Check{{Name: "socket", Do: r.socket}},
		Ready: []endpoint.Check{
			{Name: "driver", Do: r.reachable},
			{Name: "registered", Do: r.registered},
			{Name: "csidriver", Do: r.object},
		},
		Detail:  func() any { return r.now() },
		Metrics: r.c.Metrics,
		PProf:   r.c.PProf,
		Log:     r.c.Log,
	}
}

func (r *reporter) socket(context.Context) error {
	if s := r.now(); r.c.Direct == nil && s.Offers > 0 && s.Socket == "" && !s.StandingBy {
		return fmt.Errorf("the registration socket is not in place: %s", s.Problem)
	}
	return nil
}

func (r *reporter) reachable(context.Context) error {
	if s := r.now(); !s.DriverReachable {
		return errors.New(cmp.Or(s.Problem, "no connection to the driver"))
	}
	return nil
}

func (r *reporter) registered(context.Context) error {
	s := r.now()
	switch {
	case s.Registered:
		return nil
	case s.Problem != "":
		return errors.New(s.Problem)
	case s.Driver == "":
		return errors.New("the driver has not told its name yet")
	case r.c.Direct != nil:
		return errors.New("the driver is not written to the API server yet")
	case s.LastGetInfo.IsZero():
		return fmt.Errorf("no kubelet has asked at %s yet", s.Socket)
	}
	return errors.New("the kubelet has asked and not said yet how the registration ended")
}

func (r *reporter) object(context.Context) error {
	switch s := r.now(); s.CSIDriverObject {
	case "", CSIDriverKept:
		return nil
	case CSIDriverFailed, CSIDriverForeign, CSIDriverPending:
		return fmt.Errorf("the CSIDriver object: %s", cmp.Or(s.Problem, string(s.CSIDriverObject)))
	}
	return nil
}

// register registers the metrics.
func (r *reporter) register(registerer prometheus.Registerer) error {
	gauge := func(name, help string, is func(State) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "csiemu", Subsystem: "registrar", Name: name, Help: help}, func() float64 {
			if is(r.now()) {
				return 1
			}
			return 0
		})
	}
	for _, collector := range []prometheus.Collector{
		gauge("registered", "Whether the driver is registered.", func(s State) bool { return s.Registered }),
		gauge("driver_reachable", "Whether there is a connection to the driver.", func(s State) bool { return s.DriverReachable }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "csiemu", Subsystem: "registrar", Name: "offers_total",
			Help: "How often the registration socket was put in place.",
		}, func() float64 { return float64(r.now().Offers) }),
	} {
		if err := registerer.Register(collector); err != nil {
			return fmt.Errorf("run the registrar: register its metrics: %w", err)
		}
	}
	return nil
}
