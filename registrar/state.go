package registrar

import (
	"maps"
	"reflect"
	"sync"
	"time"
)

// State is what the registrar knows of the registration. /readyz shows it as JSON.
type State struct {
	// Driver is the driver's name, "" until it told it.
	Driver string `json:"driver"`
	// NodeID, Topology and MaxVolumes are what NodeGetInfo last answered.
	NodeID     string            `json:"nodeID,omitempty"`
	Topology   map[string]string `json:"topology,omitempty"`
	MaxVolumes int64             `json:"maxVolumes,omitempty"`
	// DriverReachable says whether there is a connection to the driver.
	DriverReachable bool `json:"driverReachable"`

	// Socket is the registration socket, "" while none is in place, and in direct
	// mode. Offers counts how often it was put there.
	Socket string `json:"socket,omitempty"`
	Offers int    `json:"offers,omitempty"`
	// StandingBy says that another registrar has put its socket in the place of
	// ours; this one offers the driver again once that is over.
	StandingBy bool `json:"standingBy,omitempty"`
	// Registered says whether the kubelet accepted the driver through the socket
	// that is in place. A kubelet that ended since does not tell. In direct mode it
	// says whether everything is written.
	Registered bool `json:"registered"`
	// LastGetInfo and LastNotify are when the kubelet last asked, and last told how
	// the registration ended. In direct mode LastNotify is the last write.
	LastGetInfo time.Time `json:"lastGetInfo,omitzero"`
	LastNotify  time.Time `json:"lastNotify,omitzero"`

	// CSIDriverObject is what is known of the object, "" without that option.
	CSIDriverObject CSIDriverCondition `json:"csiDriverObject,omitempty"`

	// Problem is what stands in the way now, "" if nothing does. LastError is the
	// last problem there was, and LastErrorAt when it came.
	Problem     string    `json:"problem,omitempty"`
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
}

// CSIDriverCondition is how it stands with the CSIDriver object.
type CSIDriverCondition string

// Conditions of the CSIDriver object.
const (
	// CSIDriverPending is before the driver told what it can do.
	CSIDriverPending CSIDriverCondition = "pending"
	// CSIDriverKept is when the object is there as it should be, and ours.
	CSIDriverKept CSIDriverCondition = "kept"
	// CSIDriverForeign is when somebody else owns the object; it is left alone.
	CSIDriverForeign CSIDriverCondition = "owned by somebody else"
	// CSIDriverFailed is when it could not be written; it is tried again.
	CSIDriverFailed CSIDriverCondition = "failed"
)

// reporter keeps the state and tells its changes.
type reporter struct {
	c     Config
	mu    sync.Mutex
	state State
	// problems are what stands in the way by the part that it concerns, so that
	// one part does not clear the problem of another.
	problems map[part]string
}

// part is a part of the registrar that can have a problem.
type part int

const (
	partDriver part = iota
	partRegistration
	partObject
)

func newReporter(c Config) *reporter {
	r := &reporter{c: c, problems: map[part]string{}}
	if c.CSIDriver != nil {
		r.state.CSIDriverObject = CSIDriverPending
	}
	return r
}

// now is a copy of the state.
func (r *reporter) now() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Topology = maps.Clone(s.Topology)
	return s
}

// update changes the state and tells it if it is another one then.
func (r *reporter) update(change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(change)
}

func (r *reporter) change(change func(*State)) {
	before := r.state
	change(&r.state)
	if r.c.OnState != nil && !reflect.DeepEqual(before, r.state) {
		s := r.state
		s.Topology = maps.Clone(s.Topology)
		r.c.OnState(s)
	}
}

// problem says what stands in the way of a part, nil that nothing does any more, and
// changes the state with it. It is logged when it is another one than before.
func (r *reporter) problem(of part, err error, change func(*State)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != r.problems[of] {
		r.c.Log.Warn("not registered as wanted", "driver", r.state.Driver, "problem", text)
	}
	r.problems[of] = text
	r.change(func(s *State) {
		if change != nil {
			change(s)
		}
		s.Problem = ""
		for _, p := range []part{partDriver, partRegistration, partObject} {
			if s.Problem == "" {
				s.Problem = r.problems[p]
			}
		}
		if text != "" {
			s.LastError, s.LastErrorAt = text, time.Now()
		}
	})
}
