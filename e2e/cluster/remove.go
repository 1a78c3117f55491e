package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csiemu/csiemu/e2e/process"
)

// remove removes what is left of a cluster once its processes have ended: links,
// cgroups, loop devices over its files, and the files.
func remove(number int, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	all := errors.Join(network(number).down(ctx), removeCgroup(number), detachLoops(ctx, dir))
	if err := eventually(func() error { return os.RemoveAll(dir) }); err != nil {
		all = errors.Join(all, fmt.Errorf("remove the files of a cluster: %w", err))
	}
	return all
}

// detachLoops lets go of the loop devices whose file is below dir: a driver that
// was killed, or that leaves volumes in use as they are, has not.
func detachLoops(ctx context.Context, dir string) error {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	var all error
	for _, file := range files {
		image, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(image), dir+"/") {
			continue // it was let go of meanwhile, or is not ours
		}
		device := filepath.Join("/dev", strings.Split(file, "/")[3])
		if _, err := process.Output(ctx, process.Command{Path: "losetup", Args: []string{"--detach", device}}); err != nil {
			all = errors.Join(all, err)
		}
	}
	return all
}
