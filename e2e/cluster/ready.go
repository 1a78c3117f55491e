package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csiemu/csiemu/e2e/process"
)

// ready waits until all nodes are Ready and the default service account exists,
// without which no pod can be made.
func (c *Cluster) ready(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	return c.wait(ctx, "the default service account", c.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Watch, "default", func(e watch.Event) bool {
		return e.Type != watch.Deleted
	})
}

// Ready waits until the node is Ready.
func (n *Node) Ready(ctx context.Context) error { return n.condition(ctx, core.ConditionTrue) }

// NotReady waits until the node is not: 16 s after it was lost.
func (n *Node) NotReady(ctx context.Context) error {
	return n.condition(ctx, core.ConditionFalse, core.ConditionUnknown)
}

func (n *Node) condition(ctx context.Context, wanted ...core.ConditionStatus) error {
	what := fmt.Sprintf("%s to be ready: %v", n.Name, wanted)
	return n.cluster.wait(ctx, what, n.cluster.Client.CoreV1().Nodes().Watch, n.Name, func(e watch.Event) bool {
		node, ok := e.Object.(*core.Node)
		return ok && e.Type != watch.Deleted && slices.ContainsFunc(node.Status.Conditions, func(c core.NodeCondition) bool {
			return c.Type == core.NodeReady && slices.Contains(wanted, c.Status)
		})
	})
}

// wait watches the object of that name, beginning with what there is, until it is
// as it should be. It gives up when a program of the cluster ends by itself.
func (c *Cluster) wait(ctx context.Context, what string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), name string, reached func(watch.Event) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, n := range c.nodes {
		for _, p := range []*process.Process{n.init, n.containerd, n.kubelet} {
			if p != nil {
				go watchdog(ctx, p, cancel)
			}
		}
	}
	w, err := begin(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if reached(e) {
			return nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("wait for %s: %w", what, cause)
	}
	return fmt.Errorf("wait for %s: %w", what, errors.New("the API server has ended the watch"))
}

// watchdog cancels when a process ends by itself.
func watchdog(ctx context.Context, p *process.Process, cancel context.CancelCauseFunc) {
	select {
	case <-p.Ended():
		if err := p.Failure(); err != nil {
			cancel(err)
		}
	case <-ctx.Done():
	}
}

// tails are the ends of all logs, a few lines each.
func (c *Cluster) tails() string {
	const lines = 15
	logs, err := filepath.Glob(filepath.Join(c.dir, "*", "*.log"))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, log := range logs {
		all := strings.Split(strings.TrimSpace(process.Tail(log)), "\n")
		fmt.Fprintf(&b, "\n== the end of %s\n%s", strings.TrimPrefix(log, c.dir+"/"), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return b.String()
}

// Logs are the ends of the logs of everything that runs in the cluster, for a test
// that has failed.
func (c *Cluster) Logs() string { return c.tails() }
