package process

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// Output runs a command to its end and returns what it wrote to its standard
// output. What it wrote to standard error is in the error. Name and Dir of the
// command are not used.
func Output(ctx context.Context, c Command) (string, error) {
	var out, complaint bytes.Buffer
	cmd := c.exec(ctx)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	ended, err := spawn(cmd, c.In)
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return out.String(), fmt.Errorf("run %s %s: %w: %s", c.Path, strings.Join(c.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
