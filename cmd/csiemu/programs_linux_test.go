package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// programs are the programs that scripts can run. All but csiemu run csiemu
// with the arguments given, on a poorer machine.
func programs() map[string]func() {
	return map[string]func(){
		"csiemu": main,
		// without-root has root's name but none of its power.
		"without-root": func() {
			runIn(&syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}, "csiemu")
		},
		// without-loop has an empty /dev.
		"without-loop": func() {
			runIn(&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, "in-empty-dev")
		},
		"in-empty-dev": func() {
			replaceBy("csiemu", syscall.Mount("tmpfs", "/dev", "tmpfs", 0, "size=64k"))
		},
		// on-full-disk has a file system without free space at the directory
		// full.
		"on-full-disk": func() {
			runIn(&syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, "beside-full-disk")
		},
		"beside-full-disk": func() {
			err := syscall.Mount("tmpfs", "full", "tmpfs", 0, "size=16k")
			if err == nil {
				err = os.WriteFile("full/ballast", make([]byte, 16<<10), 0o600)
			}
			replaceBy("csiemu", err)
		},
	}
}

// runIn runs another of the programs in namespaces of its own.
func runIn(attr *syscall.SysProcAttr, program string) {
	cmd := exec.Command(filepath.Join(filepath.Dir(os.Args[0]), program), os.Args[1:]...)
	if path, err := exec.LookPath(program); err == nil {
		cmd.Path = path
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// replaceBy becomes another of the programs, unless preparing it failed.
func replaceBy(program string, err error) {
	path, lookErr := exec.LookPath(program)
	if err == nil {
		err = lookErr
	}
	if err == nil {
		err = syscall.Exec(path, append([]string{program}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "prepare the machine:", err)
	os.Exit(125)
}
