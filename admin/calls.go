package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/journal"
)

// DroppedHeader is the header of /v1/calls that says how many calls the journal has
// no room for any more.
const DroppedHeader = "X-Csiemu-Dropped"

// question is what /v1/calls is asked for.
type question struct {
	match journal.Match
	// after is the number of the last call that is not wanted.
	after  uint64
	limit  int
	follow bool
}

// CheckSince refuses what is neither the number of a call nor a duration.
func CheckSince(since string) error {
	_, _, err := parseSince(since)
	return err
}

func parseSince(since string) (seq uint64, ago time.Duration, err error) {
	if since == "" {
		return 0, 0, nil
	}
	if seq, err := strconv.ParseUint(since, 10, 64); err == nil {
		return seq, 0, nil
	}
	ago, err = time.ParseDuration(since)
	if err != nil || ago < 0 {
		return 0, 0, fmt.Errorf("%q is neither the number of a call nor a duration as in 5m: %w", since, backends.ErrInvalid)
	}
	return 0, ago, nil
}

func (s *Server) question(query url.Values) (q question, err error) {
	invalid := func(name string, err error) (question, error) {
		return q, fmt.Errorf("read %s: %w: %w", name, err, backends.ErrInvalid)
	}
	for name := range query {
		if !slices.Contains([]string{"method", "volume", "node", "since", "limit", "follow"}, name) {
			return invalid("the question", fmt.Errorf("%q is none of method, volume, node, since, limit, follow", name))
		}
	}
	if method := query.Get("method"); method != "" {
		if q.match, err = journal.ParseMatch(method); err != nil {
			return invalid("method", err)
		}
	}
	for _, field := range []string{"volume", "node"} {
		if value := query.Get(field); value != "" {
			if q.match.Fields == nil {
				q.match.Fields = map[string]string{}
			}
			q.match.Fields[field] = value
		}
	}
	seq, ago, err := parseSince(query.Get("since"))
	if err != nil {
		return invalid("since", err)
	}
	q.after = seq
	if ago > 0 {
		q.after = s.before(time.Now().Add(-ago))
	}
	if limit := query.Get("limit"); limit != "" {
		if q.limit, err = strconv.Atoi(limit); err != nil || q.limit < 1 {
			return invalid("limit", fmt.Errorf("%q is no number from 1", limit))
		}
	}
	if follow := query.Get("follow"); follow != "" {
		if q.follow, err = strconv.ParseBool(follow); err != nil {
			return invalid("follow", errors.New("it is neither true nor false"))
		}
	}
	return q, nil
}

// before is the number of the last call that began before a time.
func (s *Server) before(t time.Time) uint64 {
	after := uint64(0)
	for _, e := range s.o.Emulator.Journal().Entries(0) {
		if !e.Time.Before(t) {
			break
		}
		after = e.Seq
	}
	return after
}

// calls answers with calls, oldest first, or streams them line by line as they
// end.
func (s *Server) calls(w http.ResponseWriter, r *http.Request) error {
	q, err := s.question(r.URL.Query())
	if err != nil {
		return err
	}
	j := s.o.Emulator.Journal()
	w.Header().Set(DroppedHeader, strconv.FormatUint(j.Dropped(), 10))
	if q.follow {
		return s.followCalls(w, r, q)
	}
	return send(w, http.StatusOK, q.choose(j.Entries(q.after)))
}

// call answers with one call, by its number.
func (s *Server) call(w http.ResponseWriter, r *http.Request) error {
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		return fmt.Errorf("read the number of a call %q: %w", r.PathValue("seq"), backends.ErrInvalid)
	}
	entries := s.o.Emulator.Journal().Entries(seq - 1)
	if len(entries) == 0 || entries[0].Seq != seq {
		return fmt.Errorf("find call %d: %w", seq, backends.ErrNotFound)
	}
	return send(w, http.StatusOK, entries[0])
}

// choose are the entries that are wanted; the last ones where there are more than
// the limit.
func (q question) choose(entries []*journal.Entry) []*journal.Entry {
	wanted := []*journal.Entry{}
	for _, e := range entries {
		if q.match.Matches(e) {
			wanted = append(wanted, e)
		}
	}
	if q.limit > 0 && len(wanted) > q.limit {
		wanted = wanted[len(wanted)-q.limit:]
	}
	return wanted
}

// followCalls streams the calls that have ended, the last ones up to the limit,
// and then each one that ends.
func (s *Server) followCalls(w http.ResponseWriter, r *http.Request, q question) error {
	j := s.o.Emulator.Journal()
	lines, err := startLines(w)
	if err != nil {
		return err
	}
	if q.limit > 0 {
		if last := q.choose(j.Entries(q.after)); len(last) == q.limit {
			q.after = last[0].Seq - 1
		}
	}
	for e := range j.Follow(r.Context(), q.after) {
		if !q.match.Matches(e) {
			continue
		}
		if err := lines.write(e); err != nil {
			return nil //nolint:nilerr // the reader has gone
		}
	}
	return nil
}

// lines streams values as lines of JSON.
type lines struct {
	to      *json.Encoder
	control *http.ResponseController
}

func startLines(w http.ResponseWriter) (*lines, error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	l := &lines{json.NewEncoder(w), http.NewResponseController(w)}
	if err := l.control.Flush(); err != nil {
		return nil, fmt.Errorf("begin a stream: %w", err)
	}
	return l, nil
}

func (l *lines) write(v any) error {
	if err := l.to.Encode(v); err != nil {
		return err
	}
	return l.control.Flush()
}
