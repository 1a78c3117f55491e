package cluster

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Exec runs a program in the first container of a pod to its end and returns what
// it wrote to its standard output. What it wrote to standard error is in the error.
func (c *Cluster) Exec(ctx context.Context, namespace, pod string, command ...string) (string, error) {
	url := c.Client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&core.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(c.plane.REST, "GET", url.String())
	if err != nil {
		return "", fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	var out, complaint bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &complaint})
	if err != nil {
		return out.String(), fmt.Errorf("run %s in pod %s: %w: %s", strings.Join(command, " "), pod, err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
