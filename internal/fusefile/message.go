//go:build linux

package fusefile

import (
	"errors"
	"syscall"
	"time"

	"github.com/csiemu/csiemu/internal/imagefile"
)

var (
	// ErrNotServing is returned when there is no holder.
	ErrNotServing = errors.New("no holder serves the volume")
	// ErrStopping is returned when the holder was told to stop and only waits
	// for the last user of its file.
	ErrStopping = errors.New("the holder is stopping")
	// ErrExpired is returned when writes went on before they were resumed: the
	// limit passed, or the holder is gone or was told to stop.
	ErrExpired = errors.New("writes went on before their time")
)

// What is said over the control socket: JSON values, one request and then its
// answer.
const (
	opStatus = "status"
	opBehave = "behave"
	// opPause holds writes until opResume on the same connection, or its end.
	opPause  = "pause"
	opResume = "resume"
	// opDrain lets everything go on that waits, opStop ends the holder as well.
	opDrain = "drain"
	opStop  = "stop"
)

type request struct {
	Op        string        `json:"op"`
	Behaviour *Behaviour    `json:"behaviour,omitempty"`
	Limit     time.Duration `json:"limit,omitempty"`
}

type answer struct {
	Error    string `json:"error,omitempty"`
	Stopping bool   `json:"stopping,omitempty"`
	// Expired answers opResume.
	Expired bool    `json:"expired,omitempty"`
	Status  *Status `json:"status,omitempty"`
}

// Status is what a holder says of itself.
type Status struct {
	// VolumeID is the volume that it was started for.
	VolumeID string `json:"volumeID"`
	// Image is the identity of the file whose bytes it serves.
	Image imagefile.Identity `json:"image"`
	// Behaviour is what was set last.
	Behaviour Behaviour `json:"behaviour"`
	// Stopping is true when it was told to stop and its file is still in use.
	Stopping bool `json:"stopping,omitempty"`
	// PID is the process, as it sees itself.
	PID int `json:"pid"`
}

// errorOf is the error that an answer tells.
func (a answer) errorOf() error {
	switch {
	case a.Stopping:
		return ErrStopping
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// orders are what a parent tells the holder that it has started.
type orders struct {
	VolumeID  string    `json:"volumeID"`
	Dir       string    `json:"dir"`
	Behaviour Behaviour `json:"behaviour"`
	// Tied is true for a holder that ends with its parent.
	Tied bool `json:"tied"`
}

// ready is the holder's answer: it serves, or it ends.
type ready struct {
	Error string        `json:"error,omitempty"`
	Errno syscall.Errno `json:"errno,omitempty"`
}
