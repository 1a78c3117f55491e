package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/csiemu/csiemu/e2e/programs"
)

// The images that every node has. Nothing can be pulled: pods must say
// imagePullPolicy: Never.
const (
	// Image is that of the tests' pods. Its entry point is e2e/podprog.
	Image = "csiemu.dev/e2e/podprog:1"
	// pauseImage is that of the process which holds a pod's namespaces.
	pauseImage = "csiemu.dev/e2e/pause:1"
)

// entry is the path of the only file in the images.
const entry = "/podprog"

// writeImages writes both images as an archive that containerd imports, in the
// format of docker save: a manifest that names configurations and layers.
func writeImages(path string) error {
	program, err := programs.Path("podprog")
	if err != nil {
		return err
	}
	code, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	if err := archive(&layer, []file{{name: entry[1:], data: code, mode: 0o755}}); err != nil {
		return err
	}
	files := []file{{name: "layer.tar", data: layer.Bytes(), mode: 0o644}}
	var manifest []image
	for tag, entrypoint := range map[string][]string{Image: {entry}, pauseImage: {entry, "pause"}} {
		config, err := json.Marshal(configuration(layer.Bytes(), entrypoint))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%x.json", sha256.Sum256(config))
		files = append(files, file{name: name, data: config, mode: 0o644})
		manifest = append(manifest, image{Config: name, RepoTags: []string{tag}, Layers: []string{"layer.tar"}})
	}
	list, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(archive(out, append(files, file{name: "manifest.json", data: list, mode: 0o644})), out.Close())
}

// image is an entry of the manifest.
type image struct {
	Config           string
	RepoTags, Layers []string
}

// configuration is what an image says of itself.
func configuration(layer []byte, entrypoint []string) any {
	return map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": "1970-01-01T00:00:00Z",
		"config":  map[string]any{"Entrypoint": entrypoint, "WorkingDir": "/"},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
		"history": []any{map[string]any{"created": "1970-01-01T00:00:00Z"}},
	}
}

type file struct {
	name string
	data []byte
	mode int64
}

func archive(w io.Writer, files []file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}
