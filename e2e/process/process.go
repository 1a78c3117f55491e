package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

// patience is how long a process may take to end when it is told to.
const patience = 20 * time.Second

// Command says what to start.
type Command struct {
	// Name is the name of the process in errors and that of its log, to which it
	// adds: NAME.log in Dir.
	Name, Dir string
	// Path is the program, looked for in PATH if it has no slash.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// In are the namespaces to start it in; nil for those of this process.
	In *Namespaces
	// Clone are the flags of clone(2) for namespaces that begin with it.
	Clone uintptr
	// Files are its descriptors from 3 on.
	Files []*os.File
}

func (c Command) exec(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = append(os.Environ(), c.Env...), "/", c.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.Clone}
	return cmd
}

// Process is a running program. Safe for concurrent use.
type Process struct {
	name, log string
	process   *os.Process
	// told is set once it was told to end.
	told atomic.Bool
	// ended is closed when it has ended, with state set.
	ended chan struct{}
	state error
}

// Start starts a program, whose path is absolute if the namespaces are others. It
// dies with this process or with its namespaces, however they end.
func Start(c Command) (*Process, error) {
	p := &Process{name: c.Name, log: filepath.Join(c.Dir, c.Name+".log"), ended: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.Name, err)
	}
	defer out.Close() // the process has its own
	cmd := c.exec(context.Background())
	cmd.Stdout, cmd.Stderr = out, out
	ended, err := spawn(cmd, c.In)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p.process = cmd.Process
	go func() {
		p.state = <-ended
		close(p.ended)
	}()
	return p, nil
}

// PID is the number of the process, in the namespace of this process.
func (p *Process) PID() int { return p.process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Stop ends the process by SIGTERM, by force if it takes longer than 20 s, and
// waits until it has ended. That it ended before is an error, unless it was told to.
func (p *Process) Stop() error {
	if err := p.Failure(); err != nil {
		return err
	}
	p.told.Store(true)
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("end %s: it did not within %s", p.name, patience), p.Kill())
	}
}

// Kill ends the process by SIGKILL and waits until it has ended.
func (p *Process) Kill() error {
	p.told.Store(true)
	err := p.Signal(syscall.SIGKILL)
	if err == nil {
		<-p.ended
	}
	return err
}

// Signal sends a signal to the process. If it has ended, nothing is done.
func (p *Process) Signal(s os.Signal) error {
	if err := p.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.name, err)
	}
	return nil
}

// Failure is an error if the process has ended without being told to.
func (p *Process) Failure() error {
	select {
	case <-p.ended:
		if !p.told.Load() {
			return fmt.Errorf("%s ended by itself: %w; the end of its log: %s", p.name, cmp.Or(p.state, errSuccess), p.Tail())
		}
	default:
	}
	return nil
}

// errSuccess is the state of a process that ended without an error.
var errSuccess = errors.New("exit status 0")

// mostTail is how much of a log is shown, in bytes.
const mostTail = 4000

// Tail is the end of what it wrote.
func (p *Process) Tail() string { return Tail(p.log) }

// Tail is the end of a log.
func Tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-mostTail):])
}
