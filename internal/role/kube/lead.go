package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/csiemu/csiemu/internal/role/metrics"
)

// ErrLeaseLost is returned when the lease could not be renewed in time: another
// process may lead now.
var ErrLeaseLost = errors.New("the lease was lost")

// LeaseConfig is how one of several processes is elected.
type LeaseConfig struct {
	// Leases is a client of its own, so that work never delays a renewal.
	Leases coordinationv1.LeasesGetter
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Identity is of this process, and of no other.
	Identity string
	// Duration is how long a lease lasts that is not renewed, RenewDeadline how
	// long its holder tries to renew it, RetryPeriod how often. Each is shorter
	// than the one before.
	Duration, RenewDeadline, RetryPeriod time.Duration
	// Labels are put on the Lease.
	Labels map[string]string
	// Health, unless nil, fails once a lease that was held has run out and
	// work goes on nevertheless.
	Health *leaderelection.HealthzAdaptor
	// Metrics is where leader_election_master_status is registered; nil counts
	// nothing.
	Metrics prometheus.Registerer
}

// Lead waits for the lease, without limit but ctx, and runs while it is held. The
// context of run ends with ctx, or with ErrLeaseLost as its cause.
//
// The lease is given back after run has returned, so that no two processes work at
// once and the next one need not wait for it to run out. Lead returns what run
// returned, joined with ErrLeaseLost if that is why; nil if ctx ended before there
// was a lease. Nothing of it runs any more then.
func Lead(ctx context.Context, c LeaseConfig, run func(context.Context) error) error {
	status, err := metrics.Share(c.Metrics, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "Whether this process holds the lease: 1 if it does.",
	}, []string{"name"}))
	if err != nil {
		return fmt.Errorf("lead by lease %s/%s: %w", c.Namespace, c.Name, err)
	}
	leads := status.WithLabelValues(c.Name)
	began := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
			Client:     c.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
			Labels:     c.Labels,
		},
		LeaseDuration: c.Duration, RenewDeadline: c.RenewDeadline, RetryPeriod: c.RetryPeriod,
		ReleaseOnCancel: true, Name: c.Name, WatchDog: c.Health,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(began) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("lead by lease %s/%s: %w", c.Namespace, c.Name, err)
	}
	if c.Health != nil {
		c.Health.SetLeaderElection(elector)
	}
	// The election outlives ctx by the time that run takes to end.
	election, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(election)
	}()
	defer func() {
		stop()
		<-ended
	}()
	select {
	case <-began:
	case <-ctx.Done():
		return nil
	}
	leads.Set(1)
	defer leads.Set(0)
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ended:
			cancel(ErrLeaseLost)
		case <-work.Done():
		}
	}()
	err = run(work)
	lost := errors.Is(context.Cause(work), ErrLeaseLost)
	cancel(nil)
	<-watched
	if lost {
		return fmt.Errorf("lead by lease %s/%s: %w", c.Namespace, c.Name, errors.Join(ErrLeaseLost, err))
	}
	return err
}
