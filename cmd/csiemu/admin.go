package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/csiemu/csiemu/admin"
)

// adminText is the end of the help of commands that ask a running csiemu.
const adminText = `It asks the csiemu that serves with --admin (also CSIEMU_ADMIN).`

// adminFlag defines --admin for a command that asks a running csiemu.
func adminFlag(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, "admin", admin.DefaultAddress, "`ADDRESS` of the admin endpoint, HOST:PORT or unix://PATH")
}

// asking gives ask a client of the admin endpoint, and a context that ^C ends.
func asking(ctx context.Context, address string, ask func(context.Context, *admin.Client) error) error {
	client, err := admin.NewClient(address)
	if err != nil {
		return usage("read --admin: %w", err)
	}
	defer client.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = ask(ctx, client)
	if errors.Is(err, admin.ErrUnreachable) {
		return fmt.Errorf("%w: start one with csiemu serve --admin %s, or give --admin or CSIEMU_ADMIN", err, address)
	}
	return err
}

// oneOf refuses a value of a flag that is none of its forms.
func oneOf(flag, value string, forms ...string) error {
	for _, f := range forms {
		if value == f {
			return nil
		}
	}
	last := len(forms) - 1
	return usage("read --%s: %q is no form: give %s or %s", flag, value, strings.Join(forms[:last], ", "), forms[last])
}

// orNone is a cell of a table that is not to be empty.
func orNone(text string) string { return cmp.Or(text, "-") }
