//go:build linux

package fusefile

import "sync"

// users counts who has the file open, to know when a holder that was told to
// stop is not needed any more. The mount alone does not tell: another mount
// namespace may have a copy of it. The zero value has none.
type users struct {
	mu     sync.Mutex
	open   int
	leave  bool
	gone   chan struct{}
	closed bool
}

func newUsers() *users { return &users{gone: make(chan struct{})} }

func (u *users) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open += n
	u.look()
}

// expectNone has gone closed as soon as nobody has the file open.
func (u *users) expectNone() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leave = true
	u.look()
}

func (u *users) look() {
	if u.leave && u.open <= 0 && !u.closed {
		u.closed = true
		close(u.gone)
	}
}
