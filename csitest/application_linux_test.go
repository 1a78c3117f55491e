package csitest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/csiemu/csiemu/csitest"
	"github.com/csiemu/csiemu/internal/kernel"
	"github.com/csiemu/csiemu/internal/testenv"
)

// save is the application under test: it acknowledges what is safe.
func save(dir, text string) error {
	f, err := os.Create(filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// TestDiskThatFails is what a test of an application looks like.
func TestDiskThatFails(t *testing.T) {
	testenv.Need(t, kernel.Root, kernel.Loop, kernel.Ext4, kernel.FUSE)
	d := csitest.New(t, csitest.Loop())
	volume := d.Publish(csitest.Spec{FSType: "ext4", Breakable: true})
	if err := save(volume.Path(), "first"); err != nil {
		t.Fatal(err)
	}
	volume.Fail("eio(writes)")
	if err := save(volume.Path(), "second"); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EROFS) {
		t.Fatalf("it acknowledged what was not written: %v", err)
	}
}
