package emulator

import "runtime/debug"

// Version is the version of the csiemu module in this program, "devel" where
// the build did not record one.
func Version() string {
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
}

const (
	modulePath = "github.com/csiemu/csiemu"
	devel      = "devel"
)

func known(version string) string {
	if version == "" || version == "(devel)" {
		return devel
	}
	return version
}
