package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// wrongFlag says in this program's words what a flag's value should have been.
func wrongFlag(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return usage("read --%s: %s", invalid.GetFlag().Name, wrongValue(err))
	}
	return usageError{err}
}

// wrongValue is wrongFlag without the flag's name.
func wrongValue(err error) string {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err.Error()
	}
	is := "is not understood"
	switch invalid.GetFlag().Value.Type() {
	case "bool":
		is = "is neither true nor false"
	case "int64":
		is = "is no number"
		if errors.Is(err, strconv.ErrRange) {
			is = "is out of range"
		}
	case "stringSlice":
		is = "is no list of values with commas between them"
	}
	return fmt.Sprintf("%q %s", invalid.GetValue(), is)
}
