package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/csiemu/csiemu/e2e/process"
	"github.com/csiemu/csiemu/e2e/programs"
)

// Enter starts a program in the namespaces of the node: drivers and registrars must
// be there, as the kubelet sees neither sockets nor mounts of the host. Its log is
// NAME.log in the node's Dir. The first word of command is a program of
// programs.Dir, one in PATH, or an absolute path; the host's files are in the node,
// but for /run, /var/lib and /var/log. It ends with the node at the latest.
func (n *Node) Enter(name string, command ...string) (*process.Process, error) {
	if n.inside == nil {
		return nil, fmt.Errorf("start %s in %s: the node is down", name, n.Name)
	}
	path, err := find(command[0])
	if err != nil {
		return nil, fmt.Errorf("start %s in %s: %w", name, n.Name, err)
	}
	p, err := process.Start(process.Command{Name: name, Dir: n.Dir, Path: path, Args: command[1:], Env: n.env(), In: n.inside})
	if err != nil {
		return nil, fmt.Errorf("in %s: %w", n.Name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entered = append(n.entered, p)
	return p, nil
}

// Output runs a program in the node to its end and returns what it wrote to its
// standard output. The command is as in Enter.
func (n *Node) Output(ctx context.Context, command ...string) (string, error) {
	if n.inside == nil {
		return "", fmt.Errorf("run %s in %s: the node is down", command[0], n.Name)
	}
	path, err := find(command[0])
	if err != nil {
		return "", fmt.Errorf("in %s: %w", n.Name, err)
	}
	return process.Output(ctx, process.Command{Path: path, Args: command[1:], Env: n.env(), In: n.inside})
}

func (n *Node) env() []string { return []string{"NODE_NAME=" + n.Name} }

// find is the path of a program.
func find(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if path, err := programs.Path(name); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w, nor among what `make e2e` builds", err)
	}
	return path, nil
}

// needed are the programs that Debian's packages bring; plugins are of package
// containernetworking-plugins.
var needed = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "losetup", plugins + "/bridge", plugins + "/host-local", plugins + "/loopback"}

// plugins is where Debian has CNI plugins.
const plugins = "/usr/lib/cni"

func checkPrograms() error {
	var all error
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil {
			all = errors.Join(all, err)
		}
	}
	if all != nil {
		return fmt.Errorf("find programs that `tools/packages.sh e2e` installs: %w", all)
	}
	if _, err := os.Stat(filepath.Join(hierarchies, "memory")); err != nil {
		return errNoV1
	}
	return nil
}
