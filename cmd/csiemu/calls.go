package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/journal"
)

const callsText = `List the calls that a running csiemu got, oldest first, or follow them with -f as
they end.
` + adminText

const callsExample = `  csiemu calls --method 'Node*' --since 5m
  csiemu calls --method 'CreateVolume{code=UNAVAILABLE}' -o json
  csiemu calls -f --volume vol-1`

// callsFlags are the flags of calls.
type callsFlags struct {
	admin, method, volume, node, since, output string
	limit                                      int64
	follow                                     bool
}

func newCalls() *cobra.Command {
	var f callsFlags
	cmd := &cobra.Command{
		Use:     "calls",
		Short:   "List the calls that a running csiemu got",
		Long:    callsText,
		Example: callsExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with each call that ends")
	flags.StringVar(&f.method, "method", "", "calls of an RPC only, a glob, or METHOD{FIELD=GLOB,…}")
	flags.StringVar(&f.volume, "volume", "", "calls about a volume only, by its id; a glob")
	flags.StringVar(&f.node, "node", "", "calls of a node only; a glob")
	flags.StringVar(&f.since, "since", "", "calls after that of a number only, or of the last time, as in 5m")
	flags.Int64Var(&f.limit, "limit", 0, "at most so many, the last ones; 0 means all that are kept")
	flags.StringVarP(&f.output, "output", "o", "table", "form of the answer: table, json")
	adminFlag(flags, &f.admin)
	return cmd
}

func (f *callsFlags) run(ctx context.Context, out io.Writer) error {
	if err := oneOf("output", f.output, "table", "json"); err != nil {
		return err
	}
	if f.method != "" {
		if _, err := journal.ParseMatch(f.method); err != nil {
			return usage("read --method: %w", err)
		}
	}
	if err := admin.CheckSince(f.since); err != nil {
		return usage("read --since: %w", err)
	}
	if f.limit < 0 {
		return usage("read --limit: %d is negative: give 0 for no limit", f.limit)
	}
	return asking(ctx, f.admin, func(ctx context.Context, c *admin.Client) error {
		if f.follow {
			return f.print(ctx, out, c)
		}
		return f.list(ctx, out, c)
	})
}

// path is the question.
func (f *callsFlags) path() string {
	query := url.Values{}
	for name, value := range map[string]string{"method": f.method, "volume": f.volume, "node": f.node, "since": f.since} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if f.limit > 0 {
		query.Set("limit", strconv.FormatInt(f.limit, 10))
	}
	if f.follow {
		query.Set("follow", "1")
	}
	return "/v1/calls?" + query.Encode()
}

var callsHeader = []string{"SEQ", "TIME", "METHOD", "NODE", "ABOUT", "CODE", "TOOK", "NOTE"}

func (f *callsFlags) list(ctx context.Context, out io.Writer, c *admin.Client) error {
	if f.output == "json" {
		var raw json.RawMessage
		if err := c.Get(ctx, f.path(), &raw); err != nil {
			return err
		}
		return writeJSON(out, raw)
	}
	var entries []*journal.Entry
	if err := c.Get(ctx, f.path(), &entries); err != nil {
		return err
	}
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, callRow(e))
	}
	return writeTable(out, callsHeader, rows)
}

// print prints calls as they end, each as a row or as a line of JSON.
func (f *callsFlags) print(ctx context.Context, out io.Writer, c *admin.Client) (err error) {
	var t *columns
	if f.output == "table" {
		if t, err = newColumns(out, callsHeader, 4, 12, 23, 8, 20, 9, 7); err != nil {
			return err
		}
	}
	for line, err := range c.Lines(ctx, f.path()) {
		if err != nil {
			return err
		}
		if t == nil {
			if _, err := out.Write(line); err != nil {
				return err
			}
			continue
		}
		var e journal.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read a call: %w", err)
		}
		if err := t.add(callRow(&e)); err != nil {
			return err
		}
	}
	return nil
}

func callRow(e *journal.Entry) []string {
	about := ""
	for _, id := range []string{e.Name, e.Volume, e.Snapshot, e.Group} {
		if id != "" {
			about += " " + id
		}
	}
	code, took := "under way", ""
	if e.Done {
		code, took = journal.CodeName(e.Code), e.Duration.Round(time.Microsecond).String()
	}
	note := ""
	add := func(text string) {
		if note != "" {
			note += "; "
		}
		note += text
	}
	if e.Attempt > 1 {
		add(fmt.Sprintf("attempt %d", e.Attempt))
	}
	if e.Fault != "" {
		add(e.Fault)
	}
	for _, finding := range e.Findings {
		rule, _, _ := strings.Cut(finding, ":")
		add(rule)
	}
	if e.Code != codes.OK {
		add(e.Error)
	}
	if about != "" {
		about = about[1:]
	}
	return []string{
		strconv.FormatUint(e.Seq, 10), e.Time.Local().Format("15:04:05.000"), e.Method, orNone(e.Node), orNone(about), code, orNone(took), note,
	}
}
