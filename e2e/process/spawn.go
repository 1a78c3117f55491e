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
	if in == nil {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	started, end := make(chan error), make(chan error, 1)
	// The death signal is for that of the thread that started the command, so the
	// thread stays until the command has ended.
	onThread(func() {
		if in != nil {
			if err := in.enter(); err != nil {
				started <- err
				return
			}
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			end <- cmd.Wait()
		}
	})
	return end, <-started
}

// onThread has f run on a thread of its own, which ends with it. The main thread of
// a process never ends, so that a node whose namespaces it entered would stay, with
// all that is mounted there: f does not get that one.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		done := make(chan struct{})
		onThread(func() {
			defer close(done)
			f()
		})
		<-done
	}()
}
