//go:build linux

package fusefile_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/csiemu/csiemu/internal/fusefile"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/loopdev"
	"github.com/csiemu/csiemu/internal/testenv"
)

const (
	mebibyte = 1 << 20
	imageMiB = 8
	// patience is how long a test waits for what has no time of its own.
	patience = 30 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		if err := beParent(dir, os.Getenv(parentVariable+"_TIED") == "true"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// rig is a holder and its image.
type rig struct {
	t      testing.TB
	dir    string
	volume string
	image  *os.File
	holder *fusefile.Holder
}

func newRig(t testing.TB, b fusefile.Behaviour) *rig {
	t.Helper()
	testenv.Need(t, kernel.Root, kernel.FUSE)
	r := &rig{t: t, volume: "vol-" + strings.ToLower(rand.Text())}
	parent := t.TempDir()
	r.dir = filepath.Join(parent, "breakable")
	image, err := os.Create(filepath.Join(parent, "image"))
	require.NoError(t, err)
	require.NoError(t, image.Truncate(imageMiB*mebibyte))
	r.image = image
	t.Cleanup(func() { require.NoError(t, image.Close()) })
	r.start(b)
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) config(b fusefile.Behaviour) fusefile.Config {
	return fusefile.Config{Dir: r.dir, VolumeID: r.volume, Image: r.image, Behaviour: b}
}

func (r *rig) start(b fusefile.Behaviour) {
	r.t.Helper()
	h, err := fusefile.Start(r.t.Context(), r.config(b))
	require.NoError(r.t, err)
	r.holder = h
}

func (r *rig) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(r.t, fusefile.Stop(ctx, r.dir, r.volume, true))
	r.holder.Reap()
}

// open opens the served file for the length of the test.
func (r *rig) open() *os.File {
	r.t.Helper()
	f, err := fusefile.Open(r.dir, false)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

// device puts a loop device over the served file for the length of the test.
func (r *rig) device() *loopdev.Device {
	r.t.Helper()
	testenv.Need(r.t, kernel.Loop, kernel.LoopConfigure)
	pool, err := loopdev.NewPool(loopdev.Options{})
	require.NoError(r.t, err)
	f, err := fusefile.Open(r.dir, false)
	require.NoError(r.t, err)
	d, err := pool.Attach(r.t.Context(), f, loopdev.Config{Name: "fusefile-" + rand.Text(), DirectIO: true})
	require.NoError(r.t, err)
	require.NoError(r.t, f.Close())
	r.t.Cleanup(func() {
		_, err := pool.Detach(context.Background(), d)
		require.NoError(r.t, err)
		require.NoError(r.t, pool.Close())
	})
	return d
}
