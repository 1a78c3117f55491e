package store

import (
	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/tmpfs"
)

var ofSystem = []string{"loop", "tmpfs"}

var kinds = map[string]kind{
	"loop": func(o Options) (backends.Backend, error) {
		return loop.New(loop.Options{Dir: o.Dir, Sync: o.Sync, Autoclear: o.Temporary})
	},
	"tmpfs": func(o Options) (backends.Backend, error) {
		return tmpfs.New(tmpfs.Options{Dir: o.Dir})
	},
}
