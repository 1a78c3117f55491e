package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/journal"
)

// Injector holds rules and decides which of them fires in a call. It is safe for
// concurrent use.
type Injector struct {
	mu    sync.Mutex
	rules []*active
	next  int
	rand  *rand.Rand
}

// Options describe an injector. The zero value is usable.
type Options struct {
	// Seed makes percentages come out the same way; 0 is a seed like any other.
	Seed uint64
}

// NewInjector makes an injector without rules.
func NewInjector(o Options) *Injector {
	return &Injector{rand: rand.New(rand.NewPCG(o.Seed, o.Seed))}
}

// active is a rule that was added.
type active struct {
	id   string
	rule Rule
	// at is the action that takes the next call, taken how many calls it took.
	at, taken int
	fired     int
	// gone is closed when the rule is removed: what hangs goes on.
	gone chan struct{}
	// progress is that of the things that After and Polls delay.
	progress map[journal.Subject]*progress
	// healed are the volumes that do not suffer from it any more.
	healed map[string]bool
}

// mostProgress bounds what is kept of things that nobody asks for again.
const mostProgress = 10_000

type progress struct {
	begun time.Time
	asked int
}

// Status is a rule with what has become of it.
type Status struct {
	ID   string `json:"id"`
	Rule Rule   `json:"-"`
	Text string `json:"rule"`
	// Fired is how many calls the rule has done something to.
	Fired int `json:"fired"`
	// Spent is true when no action is left.
	Spent bool `json:"spent,omitempty"`
}

// Add adds a rule behind those that are there and returns its id. It takes part in
// every call that begins after Add has returned. A rule that means nothing is
// backends.ErrInvalid (Rule.Check).
func (j *Injector) Add(r Rule) (id string, err error) {
	if err := r.Check(); err != nil {
		return "", err
	}
	if r.confined != nil { // of its own, as Identify changes it
		own := *r.confined
		r.confined = &own
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next++
	a := &active{id: "fault-" + strconv.Itoa(j.next), rule: r, gone: make(chan struct{}), progress: map[journal.Subject]*progress{}, healed: map[string]bool{}}
	j.rules = append(j.rules, a)
	return a.id, nil
}

// Identify tells the id of the volume with a name to the rules that are confined to
// it.
func (j *Injector) Identify(name, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.rules {
		if s := a.rule.confined; s != nil && s.name == name {
			s.id = id
		}
	}
}

// Exempt heals one volume of a rule about bytes: the others go on to suffer.
func (j *Injector) Exempt(ruleID, volumeID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.rules {
		if a.id == ruleID {
			a.healed[volumeID] = true
		}
	}
}

// Remove removes a rule, and lets go of the calls that hang on it.
// backends.ErrNotFound is returned for one that is not there.
func (j *Injector) Remove(id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.rules, func(a *active) bool { return a.id == id })
	if i < 0 {
		return fmt.Errorf("remove fault %q: there is none of that id: %w", id, backends.ErrNotFound)
	}
	a := j.rules[i]
	j.rules = slices.Delete(slices.Clone(j.rules), i, i+1)
	close(a.gone)
	return nil
}

// Clear removes all rules.
func (j *Injector) Clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.rules {
		close(a.gone)
	}
	j.rules = nil
}

// HasBytes reports whether there are rules about the bytes of volumes.
func (j *Injector) HasBytes() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.rules, func(a *active) bool { return a.rule.AboutBytes() })
}

// List returns the rules in the order in which they were added.
func (j *Injector) List() []Status {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make([]Status, 0, len(j.rules))
	for _, a := range j.rules {
		all = append(all, Status{ID: a.id, Rule: a.rule, Text: a.rule.String(), Fired: a.fired, Spent: a.at >= len(a.rule.Chain)})
	}
	return all
}

// Firing is a fault that fires in one call.
type Firing struct {
	// ID is that of the rule, Action what it does.
	ID     string
	Action Action
	// Released is closed when the rule is removed.
	Released <-chan struct{}
	// Ready is true where After or Polls has come to its end for the thing that
	// the call is about: the call is to be served.
	Ready bool
}

// String names the firing in the journal.
func (f Firing) String() string { return f.ID + ": " + f.Action.String() }

// Released is closed when a rule is removed; of one that is not there it is closed
// already.
func (j *Injector) Released(id string) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.rules {
		if a.id == id {
			return a.gone
		}
	}
	gone := make(chan struct{})
	close(gone)
	return gone
}

// Decide says which fault fires in a call, of which e is the entry: the first
// rule that matches and has not come to its end. It counts the call.
func (j *Injector) Decide(e *journal.Entry) (Firing, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range j.rules {
		if a.rule.AboutBytes() || a.at >= len(a.rule.Chain) || !a.rule.means(e) {
			continue
		}
		if f, fires := j.take(a, e); fires {
			return f, true
		}
	}
	return Firing{}, false
}

// take lets the action whose turn it is take a call.
func (j *Injector) take(a *active, e *journal.Entry) (Firing, bool) {
	action := a.rule.Chain[a.at]
	f := Firing{ID: a.id, Action: action, Released: a.gone}
	if action.Verb == After || action.Verb == Polls {
		// It ends with the thing, not with a number of calls.
		f.Ready = a.advance(e, action)
		if !f.Ready {
			a.fired++
		}
		return f, true
	}
	a.taken++
	if action.Count > 0 && a.taken >= action.Count {
		a.at, a.taken = a.at+1, 0
	}
	if action.Percent > 0 && j.rand.Float64()*100 >= action.Percent {
		return Firing{}, false
	}
	if action.Verb != OK {
		a.fired++
	}
	return f, true
}

// advance counts a call about a thing that makes slow progress, and says whether
// it has come to its end.
func (a *active) advance(e *journal.Entry, action Action) bool {
	thing := e.Subject()
	p := a.progress[thing]
	if p == nil {
		if len(a.progress) >= mostProgress {
			clear(a.progress)
		}
		p = &progress{begun: time.Now()}
		a.progress[thing] = p
	}
	p.asked++
	if action.Verb == After {
		return time.Since(p.begun) >= action.Duration
	}
	return p.asked > action.Polls
}

// OnBytes returns the actions about the bytes of a volume, in the order of their
// rules.
func (j *Injector) OnBytes(volumeID, name string) []Firing {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []Firing
	for _, a := range j.rules {
		if a.rule.Means(volumeID, name) && !a.healed[volumeID] {
			all = append(all, Firing{ID: a.id, Action: a.rule.Chain[0], Released: a.gone})
		}
	}
	return all
}

// Means reports whether a rule is about the bytes of a volume.
func (r Rule) Means(id, name string) bool {
	if !r.AboutBytes() {
		return false
	}
	if s := r.confined; s != nil {
		return s.name == name
	}
	m := r.Match
	m.Method = ""
	return m.Matches(&journal.Entry{Method: "CreateVolume", Volume: id, Name: name})
}

// Covers reports whether a rule about bytes certainly names all volumes that another
// one names: it names all there are, or the same with the same words.
func (r Rule) Covers(other Rule) bool {
	return len(r.Match.Fields) == 0 || r.Match.String() == other.Match.String()
}
