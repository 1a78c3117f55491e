package process

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawn starts a command, in other namespaces unless they are nil, and returns the
// channel that gets what became of it.
//
// In the namespaces of this process the command dies with this process. In others
// it dies with the first process of the process namespace, which its starter sees
// to; asking for a signal there as well would make package syscall believe that
// this process, which has no number there, has died already.
func spawn(cmd *exec.Cmd, in *Namespaces) (ended <-chan error, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	started, end := make(chan error), make(chan error, 1)
	go func() {
		// The death signal is for that of the thread that started the command,
		// so the thread stays until the command has ended.
		runtime.LockOSThread()
		if in == nil {
			defer runtime.UnlockOSThread()
			cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		} else if err := in.enter(); err != nil {
			started <- err
			return
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
	}()
	return end, <-started
}
