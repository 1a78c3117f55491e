// Package kube is what the roles share about Kubernetes: clients, caches of only
// what a role needs, patches, a view that never forgets its own writes, leadership,
// and the metrics of queues.
//
// Nothing in here ends the process, changes global state or reads the environment.
package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClientConfig says how to reach the API server.
type ClientConfig struct {
	// Kubeconfig is a file; "" means the service account of the pod.
	Kubeconfig string
	// QPS limits the requests a second, with Burst on top. 0 or less means no
	// limit on this side: the server's priority and fairness limits.
	QPS   float32
	Burst int
	// UserAgent is what the server's log calls the client.
	UserAgent string
}

// Config is the configuration that New uses. Objects travel as protobuf where
// the server knows it.
func (c ClientConfig) Config() (*rest.Config, error) {
	config, err := c.load()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = c.QPS, c.Burst
	if c.QPS <= 0 {
		config.QPS = -1
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if c.UserAgent != "" {
		config.UserAgent = c.UserAgent
	}
	return config, nil
}

func (c ClientConfig) load() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server from inside a pod: %w: give a kubeconfig elsewhere", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// New returns a client. One that renews leases should be of its own, so that work
// never delays them.
func New(c ClientConfig) (kubernetes.Interface, error) {
	config, err := c.Config()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", config.Host, err)
	}
	return client, nil
}
