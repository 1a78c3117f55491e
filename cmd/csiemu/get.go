package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csiemu/csiemu/admin"
	"github.com/csiemu/csiemu/backends"
)

const getText = `List what a running csiemu has. With an ID, only that of the volume (its id or
name), snapshot or node, and the attachments and mounts of a volume.
` + adminText

const getExample = `  csiemu get volumes
  csiemu get volumes pvc-1 -o yaml
  csiemu get attachments -w`

// getFlags are the flags of get.
type getFlags struct {
	admin, output string
	watch         bool
}

func newGet() *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:       "get KIND [ID]",
		Short:     "List volumes, snapshots, attachments, mounts and nodes of a running csiemu",
		Long:      getText,
		Example:   getExample,
		ValidArgs: kindNames(),
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("no kind is given: give one of %s", strings.Join(kindNames(), ", "))
			case findKind(args[0]) == nil:
				return usage("unknown kind %q: give one of %s", args[0], strings.Join(kindNames(), ", "))
			case len(args) > 2:
				return usage("unexpected argument %q: give a kind and at most one id", args[2])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 1 {
				id = args[1]
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), findKind(args[0]), id)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.output, "output", "o", "table", "form of the answer: table, json, yaml, name")
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on with what changes, each as it is then")
	adminFlag(flags, &f.admin)
	return cmd
}

func (f *getFlags) run(ctx context.Context, out io.Writer, k *kind, id string) error {
	if err := oneOf("output", f.output, "table", "json", "yaml", "name"); err != nil {
		return err
	}
	return asking(ctx, f.admin, func(ctx context.Context, c *admin.Client) error {
		if f.watch {
			return f.follow(ctx, out, c, k, id)
		}
		var raw []json.RawMessage
		if err := c.Get(ctx, "/v1/"+k.name, &raw); err != nil {
			return err
		}
		things, err := k.read(raw, id)
		if err != nil {
			return err
		}
		if id != "" && len(things) == 0 {
			return fmt.Errorf("get %s %q: %w", k.name, id, backends.ErrNotFound)
		}
		return f.write(out, k, things, id)
	})
}

// write writes things in the form that was asked for. A thing with an id of its own
// that was asked for is no list.
func (f *getFlags) write(out io.Writer, k *kind, things []thing, id string) error {
	var raw any = raws(things)
	if id != "" && k.single && len(things) == 1 {
		raw = things[0].raw
	}
	switch f.output {
	case "json":
		return writeJSON(out, raw)
	case "yaml":
		return writeYAML(out, raw)
	case "name":
		for _, t := range things {
			if _, err := fmt.Fprintln(out, t.name); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, t := range things {
		rows = append(rows, t.row)
	}
	return writeTable(out, k.header, rows)
}

// follow writes things as they are, and again each that changes. In the table, and
// among names, what is gone has a line that says so.
func (f *getFlags) follow(ctx context.Context, out io.Writer, c *admin.Client, k *kind, id string) (err error) {
	var t *columns
	known := map[string]string{}
	for line, err := range c.Lines(ctx, "/v1/"+k.name+"?watch=1") {
		if err != nil {
			return err
		}
		var raw []json.RawMessage
		if err := json.Unmarshal(line, &raw); err != nil {
			return fmt.Errorf("read %s: %w", k.name, err)
		}
		things, err := k.read(raw, id)
		if err != nil {
			return err
		}
		changed, gone := news(known, things)
		if f.output == "table" {
			if t == nil {
				if t, err = newColumns(out, k.header, widths(k.header, things)...); err != nil {
					return err
				}
			}
			for _, c := range changed {
				if err := t.add(c.row); err != nil {
					return err
				}
			}
			for _, name := range gone {
				if err := t.add([]string{name, "gone"}); err != nil {
					return err
				}
			}
			continue
		}
		if err := f.writeNews(out, changed, gone); err != nil {
			return err
		}
	}
	return nil
}

func (f *getFlags) writeNews(out io.Writer, changed []thing, gone []string) error {
	for _, c := range changed {
		var err error
		switch f.output {
		case "name":
			_, err = fmt.Fprintln(out, c.name)
		case "json":
			_, err = fmt.Fprintf(out, "%s\n", c.raw)
		default:
			if _, err = fmt.Fprintln(out, "---"); err == nil {
				err = writeYAML(out, c.raw)
			}
		}
		if err != nil {
			return err
		}
	}
	if f.output == "name" {
		for _, name := range gone {
			if _, err := fmt.Fprintln(out, name, "gone"); err != nil {
				return err
			}
		}
	}
	return nil
}
