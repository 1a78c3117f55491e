//go:build linux

package fusefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerPatience is how long a holder may take to answer.
const answerPatience = 5 * time.Second

// client is a connection to a holder.
type client struct {
	conn *net.UnixConn
	in   *json.Decoder
	pid  int
}

func connect(ctx context.Context, dir string) (*client, error) {
	conn, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	pid, err := peer(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &client{conn: conn, in: json.NewDecoder(conn), pid: pid}, nil
}

// ask sends one request and waits for the answer until ctx is done, no longer
// than patience.
func (c *client) ask(ctx context.Context, patience time.Duration, q request) (answer, error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })
	defer stop()
	err := json.NewEncoder(c.conn).Encode(q)
	var a answer
	if err == nil {
		err = c.in.Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return a, fmt.Errorf("the holder, process %d, does not answer: %w", c.pid, err)
	case err != nil: // it ended meanwhile
		return a, errors.Join(ErrNotServing, err)
	}
	return a, a.errorOf()
}

// once is a connection for one request.
func once(ctx context.Context, dir string, q request) (answer, error) {
	c, err := connect(ctx, dir)
	if err != nil {
		return answer{}, err
	}
	defer c.conn.Close()
	return c.ask(ctx, answerPatience, q)
}

// Ask asks the holder of dir for its status. ErrNotServing is returned when
// there is none.
func Ask(ctx context.Context, dir string) (Status, error) {
	a, err := once(ctx, dir, request{Op: opStatus})
	if err == nil && a.Status == nil {
		err = errors.New("the answer has no status")
	}
	if err != nil {
		return Status{}, fmt.Errorf("ask holder in %s: %w", dir, err)
	}
	return *a.Status, nil
}

// Behave replaces the behaviour of the holder of dir. backends.ErrInvalid is
// returned for one that means nothing, ErrNotServing when there is no holder.
func Behave(ctx context.Context, dir string, b Behaviour) error {
	if err := b.Check(); err != nil {
		return err
	}
	if _, err := once(ctx, dir, request{Op: opBehave, Behaviour: &b}); err != nil {
		return fmt.Errorf("tell holder in %s how to behave: %w", dir, err)
	}
	return nil
}

// Drain lets everything go on that waits in the holder of dir, and nothing wait
// in it any more. No holder is no error.
func Drain(ctx context.Context, dir string) error {
	if _, err := once(ctx, dir, request{Op: opDrain}); err != nil && !errors.Is(err, ErrNotServing) {
		return fmt.Errorf("drain holder in %s: %w", dir, err)
	}
	return nil
}

// Pause is a pause of writes. It is safe for concurrent use.
type Pause struct {
	dir    string
	client *client
	once   sync.Once
	err    error
}

// PauseWrites makes all writes to the file of dir wait until Resume, for no
// longer than limit. What was acknowledged before it returned is in the image,
// and nothing is written to that later. ErrNotServing and ErrStopping are
// returned as they say.
func PauseWrites(ctx context.Context, dir string, limit time.Duration) (*Pause, error) {
	c, err := connect(ctx, dir)
	if err == nil {
		if _, err = c.ask(ctx, answerPatience, request{Op: opPause, Limit: limit}); err != nil {
			_ = c.conn.Close() // which ends the pause, should it be one
		}
	}
	if err != nil {
		return nil, fmt.Errorf("pause writes in %s: %w", dir, err)
	}
	return &Pause{dir: dir, client: c}, nil
}

// Resume lets writes go on. ErrExpired is returned when they did so before.
// Calling it again gives the same result.
func (p *Pause) Resume() error {
	p.once.Do(func() {
		a, err := p.client.ask(context.Background(), answerPatience, request{Op: opResume})
		if err != nil || a.Expired {
			err = errors.Join(ErrExpired, err)
		}
		if err = errors.Join(err, p.client.conn.Close()); err != nil {
			p.err = fmt.Errorf("resume writes in %s: %w", p.dir, err)
		}
	})
	return p.err
}

// Kill ends the holder of dir as a power cut ends a disk: I/O on its file fails
// with EIO from now on. No holder is no error.
func Kill(ctx context.Context, dir string) error {
	c, err := connect(ctx, dir)
	if errors.Is(err, ErrNotServing) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill holder in %s: %w", dir, err)
	}
	defer c.conn.Close()
	if err := kill(c.pid); err != nil {
		return fmt.Errorf("kill holder in %s: %w", dir, err)
	}
	lock, err := ended(ctx, dir, c.pid)
	if err != nil {
		return fmt.Errorf("kill holder in %s: %w", dir, err)
	}
	return lock.Close()
}

// kill is for a process that has a connection to this one, so its number is its
// own still.
func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// ended waits until the holder is gone, and returns its lock.
func ended(ctx context.Context, dir string, pid int) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	lock, err := awaitLock(ctx, dir)
	if err == nil {
		reap(pid)
	}
	return lock, err
}

// reap takes the exit status of a process that has ended, if it was a child of
// this one.
func reap(pid int) {
	for {
		_, err := unix.Wait4(pid, nil, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			return // ECHILD: another process started it
		}
	}
}
