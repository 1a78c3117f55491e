package emulator_test

import (
	"os"
	"syscall"
)

func inodeOf(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }
