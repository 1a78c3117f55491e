package emulator

import (
	"runtime/debug"
	"sync"
)

// Version is the version of the csiemu module in this program, "devel" where
// the build did not record one.
func Version() string { return version() }

// version is found out once: it reads the whole list of modules.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	if info.Main.Path == modulePath {
		return known(info.Main.Version)
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return known(m.Version)
		}
	}
	return devel
})

const (
	modulePath = "github.com/csiemu/csiemu"
	devel      = "devel"
)

func known(v string) string {
	if v == "" || v == "(devel)" {
		return devel
	}
	return v
}
