package fault

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/journal"
)

// form is the way in which a fault is written, for messages.
const form = `want METHOD{FIELD=GLOB,…}: [N*][P%]ACTION->…, as in CreateVolume: 2*return(UNAVAILABLE)->ok`

// Parse reads a rule. Errors are backends.ErrInvalid and say what was wanted.
func Parse(text string) (Rule, error) {
	r, err := parse(text)
	if err != nil {
		return Rule{}, fmt.Errorf("read the fault %q: %w; %s: %w", text, err, form, backends.ErrInvalid)
	}
	return r, nil
}

func parse(text string) (r Rule, err error) {
	rest := ""
	if r.Match, rest, err = readMatch(text); err != nil {
		return Rule{}, err
	}
	rest = strings.TrimLeft(rest, " \t\n")
	if !strings.HasPrefix(rest, ":") {
		return Rule{}, fmt.Errorf("no colon follows %s", r.Match)
	}
	for rest = rest[1:]; ; {
		var a Action
		if a, rest, err = readAction(rest); err != nil {
			return Rule{}, err
		}
		r.Chain = append(r.Chain, a)
		rest = strings.TrimLeft(rest, " \t\n")
		if rest == "" {
			break
		}
		if !strings.HasPrefix(rest, "->") {
			return Rule{}, fmt.Errorf("%q follows the action %s", rest, a)
		}
		rest = rest[2:]
	}
	for i := range r.Chain[:len(r.Chain)-1] { // each but the last takes a number of calls
		if r.Chain[i].Count == 0 {
			r.Chain[i].Count = 1
		}
	}
	return r, r.check()
}

// readMatch reads the calls of a rule; those of Volume are no RPC.
func readMatch(text string) (journal.Match, string, error) {
	trimmed := strings.TrimLeft(text, " \t\n")
	rest, ok := strings.CutPrefix(trimmed, VolumeMethod)
	if !ok || strings.HasPrefix(rest, "*") || strings.HasPrefix(rest, "?") || (rest != "" && isLetter(rest[0])) {
		return journal.ReadMatch(text)
	}
	m, rest, err := journal.ReadMatch("*" + rest)
	m.Method = VolumeMethod
	return m, rest, err
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// Check returns backends.ErrInvalid for a rule that means nothing: what Parse
// returns is right.
func (r Rule) Check() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("check a fault: %w: %w", err, backends.ErrInvalid)
	}
	return nil
}

func (r Rule) check() error {
	if len(r.Chain) == 0 {
		return errors.New("it has no action")
	}
	for i, a := range r.Chain {
		if a.Step != "" {
			if err := passes(r.Match.Method, a.Step); err != nil {
				return err
			}
		}
		if _, known := verbs[a.Verb]; !known {
			return fmt.Errorf("%q is none of %s", a.Verb, verbNames())
		}
		if a.Count < 0 || a.Percent < 0 || a.Percent > 100 || a.Count == 0 && i < len(r.Chain)-1 {
			return fmt.Errorf("action %s takes %d calls and %g percent of them", a, a.Count, a.Percent)
		}
		if about := slices.Contains(bytesVerbs, a.Verb); about != r.AboutBytes() {
			if about {
				return fmt.Errorf("%s is a fault of a volume, as in %s{volume=ID}: %s", a.Verb, VolumeMethod, a)
			}
			return fmt.Errorf("%s is a fault of calls, not of a volume", a.Verb)
		}
	}
	if !r.AboutBytes() {
		return nil
	}
	switch {
	case len(r.Chain) > 1:
		return errors.New("a fault of a volume is one action, which lasts until it is removed")
	case r.Chain[0].Count > 0 || r.Chain[0].Percent > 0:
		return errors.New("a fault of a volume has neither a number nor a percentage")
	}
	for field := range r.Match.Fields {
		if field != "volume" && field != "name" {
			return fmt.Errorf("the volumes of a fault are named by volume= or name=, not by %s=", field)
		}
	}
	return nil
}

// ParseAction reads an action alone, in the form of Action.String.
func ParseAction(text string) (Action, error) {
	a, rest, err := readAction(text)
	if err == nil && strings.TrimSpace(rest) != "" {
		err = fmt.Errorf("%q follows", rest)
	}
	if err != nil {
		return Action{}, fmt.Errorf("read the action %q: %w: %w", text, err, backends.ErrInvalid)
	}
	return a, nil
}

// readAction reads one action and returns what follows.
func readAction(text string) (a Action, rest string, err error) {
	rest = strings.TrimLeft(text, " \t\n")
	if number, after, ok := cutNumber(rest, '*'); ok {
		if a.Count, err = strconv.Atoi(number); err != nil || a.Count < 1 {
			return Action{}, "", fmt.Errorf("%q is no number of calls", number)
		}
		rest = strings.TrimLeft(after, " \t\n")
	}
	if number, after, ok := cutNumber(rest, '%'); ok {
		if a.Percent, err = parsePercent(number); err != nil {
			return Action{}, "", err
		}
		rest = strings.TrimLeft(after, " \t\n")
	}
	end := 0
	for end < len(rest) && isLetter(rest[end]) {
		end++
	}
	a.Verb = Verb(rest[:end])
	rest = rest[end:]
	var args []string
	if strings.HasPrefix(rest, "(") {
		if args, rest, err = readArgs(rest[1:]); err != nil {
			return Action{}, "", fmt.Errorf("%s: %w", a.Verb, err)
		}
	}
	read, known := verbs[a.Verb]
	if !known {
		return Action{}, "", fmt.Errorf("%q is none of %s", a.Verb, verbNames())
	}
	if err := read(&a, args); err != nil {
		return Action{}, "", fmt.Errorf("%s: %w", a.Verb, err)
	}
	return a, rest, nil
}

// cutNumber cuts a number in front of a mark.
func cutNumber(text string, mark byte) (number, rest string, ok bool) {
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '.') {
		end++
	}
	if end == 0 || end == len(text) || text[end] != mark {
		return "", text, false
	}
	return text[:end], text[end+1:], true
}

func parsePercent(number string) (float64, error) {
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(p) || p <= 0 || p > 100 {
		return 0, fmt.Errorf("%q is no percentage above 0 and up to 100", number)
	}
	return p, nil
}

// readArgs reads arguments up to the closing parenthesis. Those in quotes are
// unquoted.
func readArgs(text string) (args []string, rest string, err error) {
	for {
		text = strings.TrimLeft(text, " \t\n")
		if text == "" {
			return nil, "", errors.New("a parenthesis is not closed")
		}
		var arg string
		if text[0] == '"' {
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil {
				return nil, "", errors.New("a quote is not closed")
			}
			if arg, err = strconv.Unquote(quoted); err != nil {
				return nil, "", err
			}
			text = strings.TrimLeft(text[len(quoted):], " \t\n")
		} else {
			end := strings.IndexAny(text, `,)"(`)
			if end < 0 {
				return nil, "", errors.New("a parenthesis is not closed")
			}
			arg, text = strings.TrimSpace(text[:end]), text[end:]
		}
		if text == "" || (text[0] != ',' && text[0] != ')') {
			return nil, "", fmt.Errorf("neither , nor ) follows %q", arg)
		}
		args = append(args, arg)
		if text[0] == ')' {
			if len(args) == 1 && arg == "" {
				args = nil
			}
			return args, text[1:], nil
		}
		text = text[1:]
	}
}

// bytesVerbs are the verbs of rules about bytes.
var bytesVerbs = []Verb{EIO, ReadOnly, Full, Slow, Gone, Corrupt, Heal, Health}

// verbs read the arguments of each verb.
var verbs = map[Verb]func(*Action, []string) error{
	OK: none, Hang: none, Drop: none, ReadOnly: none, Gone: none, Heal: none,
	Return: func(a *Action, args []string) (err error) {
		if len(args) < 1 || len(args) > 2 {
			return errors.New(`want a code, and a message if you like: return(UNAVAILABLE,"come back later")`)
		}
		if a.Code, err = journal.ParseCode(args[0]); err != nil {
			return err
		}
		if a.Code == codes.OK {
			return errors.New("OK is the action ok")
		}
		if len(args) == 2 {
			a.Message = args[1]
		}
		return nil
	},
	Sleep: duration, After: duration, Slow: duration,
	Polls: func(a *Action, args []string) (err error) {
		if len(args) != 1 {
			return errors.New("want a number, as in polls(3)")
		}
		if a.Polls, err = strconv.Atoi(args[0]); err != nil || a.Polls < 1 {
			return fmt.Errorf("%q is no number of calls", args[0])
		}
		return nil
	},
	Crash: killPoint, Partial: killPoint,
	Full: func(a *Action, args []string) (err error) {
		if len(args) != 1 || !strings.HasSuffix(args[0], "%") {
			return errors.New("want a percentage, as in full(95%)")
		}
		a.Level, err = parsePercent(strings.TrimSuffix(args[0], "%"))
		return err
	},
	Corrupt: func(a *Action, args []string) error { return a.readRange(args) },
	EIO: func(a *Action, args []string) error {
		if len(args) > 0 && (args[0] == "reads" || args[0] == "writes") {
			a.Only, args = args[0], args[1:]
		}
		if len(args) == 0 {
			return nil
		}
		return a.readRange(args)
	},
	Health: func(a *Action, args []string) error {
		if len(args) != 2 {
			return errors.New(`want a status and a reason, as in health(DEGRADED,"SlowDisk")`)
		}
		a.Status, a.Reason = args[0], args[1]
		return backends.CheckVolumeConditions([]backends.Condition{{Status: backends.HealthStatus(a.Status), Reason: a.Reason}})
	},
}

func verbNames() string {
	var names []string
	for v := range verbs {
		names = append(names, string(v))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func none(_ *Action, args []string) error {
	if len(args) > 0 {
		return errors.New("it takes no arguments")
	}
	return nil
}

// longest is the longest duration: a month.
const longest = 31 * 24 * time.Hour

func duration(a *Action, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("want a duration, as in 30s")
	}
	if a.Duration, err = time.ParseDuration(args[0]); err == nil && a.Duration > longest {
		return fmt.Errorf("%s is longer than %s", args[0], longest)
	}
	if err != nil || a.Duration <= 0 {
		return fmt.Errorf("%q is no duration such as 30s", args[0])
	}
	return nil
}

func killPoint(a *Action, args []string) error {
	if len(args) != 1 {
		return errors.New("want a kill point, as in array.volume.ready")
	}
	if err := checkStep(args[0]); err != nil {
		return err
	}
	a.Step = args[0]
	return nil
}

func (a *Action) readRange(args []string) error {
	if len(args) != 2 {
		return errors.New("want an offset and a length in bytes")
	}
	var errs [2]error
	a.Offset, errs[0] = strconv.ParseInt(args[0], 10, 64)
	a.Length, errs[1] = strconv.ParseInt(args[1], 10, 64)
	if errors.Join(errs[:]...) != nil || a.Offset < 0 || a.Length < 1 || a.Offset > math.MaxInt64-a.Length {
		return fmt.Errorf("%s and %s are no offset and length in bytes", args[0], args[1])
	}
	return nil
}
