// Command build builds what the tests of this module run beside csiemu, from the
// Go modules that tools/go.mod pins: etcd, the control plane of Kubernetes, its
// storage sidecars and a driver of its tests. What is there already for the same pins, flags and Go is left
// as it is. Run it in the directory of this module; `make e2e` does.
//
// From nothing it takes about ten minutes of two cores, 5 GB of Go's caches and
// 400 MB in the directory of programs.Dir.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/csiemu/csiemu/e2e/programs"
)

// tools is the module that pins what others wrote.
const tools = "tools"

// program is a file to be built.
type program struct {
	name, pkg, module string
	// ours says that it is of this module.
	ours bool
	// versionIn are the variables that tell the program its version; without
	// them Kubernetes takes itself for v0.0.0.
	versionIn []string
	// links are further names of the file.
	links []string
}

func all() []program {
	sidecar := func(name, module string) program {
		return program{name: name, pkg: module + "/cmd/" + name, module: module, versionIn: []string{"main.version"}}
	}
	return []program{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", module: "go.etcd.io/etcd/server/v3"},
		{
			name: "kube", pkg: "./kube", module: "k8s.io/kubernetes",
			versionIn: []string{"k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"},
			links:     []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"},
		},
		{name: "csi-mock", pkg: "./mock", module: "k8s.io/kubernetes"},
		sidecar("csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6"),
		sidecar("csi-attacher", "github.com/kubernetes-csi/external-attacher/v4"),
		sidecar("csi-resizer", "github.com/kubernetes-csi/external-resizer/v2"),
		{name: "nodeinit", pkg: "./nodeinit", ours: true},
		{name: "podprog", pkg: "./podprog", ours: true},
	}
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := buildAll(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func buildAll(ctx context.Context) error {
	dir, err := programs.Dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range all() {
		if err := p.build(ctx, dir); err != nil {
			return fmt.Errorf("build %s: %w", p.name, err)
		}
	}
	return nil
}

// build builds a program, unless it was built from the same before.
func (p program) build(ctx context.Context, dir string) error {
	if p.ours { // Go itself knows quickly whether anything has changed
		_, err := output(ctx, ".", "build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(dir, p.name), p.pkg)
		return err
	}
	version, err := output(ctx, tools, "list", "-m", "-f", "{{.Version}}", p.module)
	if err != nil {
		return err
	}
	flags := "-s -w"
	for _, variable := range p.versionIn {
		flags += " -X " + variable + "=" + version
	}
	key, err := p.key(flags)
	if err != nil {
		return err
	}
	path, stamp := filepath.Join(dir, p.name), filepath.Join(dir, p.name+".stamp")
	have, err := os.ReadFile(stamp)
	if _, missing := os.Stat(path); missing == nil && err == nil && string(have) == key {
		return nil
	}
	fmt.Printf("building %s of %s %s\n", p.name, p.module, version)
	began := time.Now()
	if _, err := output(ctx, tools, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", path, p.pkg); err != nil {
		return err
	}
	for _, link := range p.links {
		if err := relink(p.name, filepath.Join(dir, link)); err != nil {
			return err
		}
	}
	fmt.Printf("built %s in %s\n", p.name, time.Since(began).Round(time.Second))
	return os.WriteFile(stamp, []byte(key), 0o644)
}

// key changes with whatever the program is built from.
func (p program) key(flags string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, p.pkg, flags, p.links)
	files := []string{"go.mod", "go.sum"}
	if strings.HasPrefix(p.pkg, "./") {
		files = append(files, filepath.Join(p.pkg, "main.go"))
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(tools, file))
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// relink makes a symbolic link anew.
func relink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}

// output runs the go command in the directory of a module and returns what it
// printed.
func output(ctx context.Context, module string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return strings.TrimSpace(out.String()), nil
}
