//go:build linux

package freeze

// WatchdogPID is the process id of the running watchdog, 0 if there is none.
func (f *Freezer) WatchdogPID() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.link == nil || f.link.isDead() {
		return 0
	}
	return f.link.cmd.Process.Pid
}

// The names that tests of the second start need.
const (
	WatchdogName = watchdogName
	WatchdogEnv  = watchdogEnv
)
