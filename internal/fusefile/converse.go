//go:build linux

package fusefile

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"syscall"
)

// converse answers the requests of one connection. A pause ends with it.
func (h *holder) converse(conn *net.UnixConn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var held *pause
	defer func() {
		if held != nil {
			held.resume()
		}
	}()
	for {
		var q request
		if in.Decode(&q) != nil {
			return
		}
		var a answer
		var err error
		switch q.Op {
		case opStatus:
			a.Status = h.status()
		case opBehave:
			err = h.behave(q.Behaviour)
		case opPause:
			if held != nil {
				err = errors.New("writes are held by this connection already")
				break
			}
			held, err = h.conduct.gate.pause(context.Background(), q.Limit)
		case opResume:
			a.Expired = held == nil || held.resume()
			held = nil
		case opDrain:
			h.conduct.drain()
		case opStop:
			err = h.stop()
		default:
			err = errors.New("unknown request " + q.Op)
		}
		a.Stopping = errors.Is(err, ErrStopping)
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

func (h *holder) status() *Status {
	s := &Status{VolumeID: h.VolumeID, Image: h.image, Behaviour: h.conduct.acting().Behaviour, PID: os.Getpid()}
	select {
	case <-h.stopping:
		s.Stopping = true
	default:
	}
	return s
}

func (h *holder) behave(b *Behaviour) error {
	if b == nil {
		return errors.New("no behaviour")
	}
	if err := b.Check(); err != nil {
		return err
	}
	h.conduct.behave(*b)
	return nil
}

// errnoIn is the error number in err, 0 if there is none.
func errnoIn(err error) syscall.Errno {
	var errno syscall.Errno
	_ = errors.As(err, &errno) // false leaves 0
	return errno
}
