package admin

import (
	"html/template"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/journal"
)

// functions are what templates can call.
var functions = template.FuncMap{
	"bytes":    func(n int64) string { return humanize.IBytes(uint64(max(n, 0))) },
	"clock":    func(t time.Time) string { return t.Local().Format("15:04:05.000") },
	"code":     func(e *journal.Entry) string { return codeText(e) },
	"codeKind": codeKind,
	"head":     func(text string) string { head, _, _ := strings.Cut(text, ":"); return head },
	"inc":      func(n int) int { return n + 1 },
	"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"join":     strings.Join,
	"took":     took,
}

func codeText(e *journal.Entry) string {
	if !e.Done {
		return "under way"
	}
	return journal.CodeName(e.Code)
}

// codeKind is the class in which a code is shown.
func codeKind(e *journal.Entry) string {
	switch {
	case !e.Done:
		return "busy"
	case e.Code == codes.OK:
		return "good"
	}
	return "bad"
}

// took is a duration for people, with about three digits.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
