package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"
)

// logFlags are the flags of a role's log.
type logFlags struct {
	level, format string
	// verbosity is deprecated.
	verbosity int
}

func (f *logFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.level, "log-level", "info", "least level to log: debug, info, warn, error")
	flags.StringVar(&f.format, "logging-format", "text", "form of the log: text, json")
	flags.IntVarP(&f.verbosity, "v", "v", 0, deprecated+"4 and more mean --log-level debug")
}

func (f *logFlags) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usage("read --log-level: %q is no level: give debug, info, warn or error", f.level)
	}
	if f.verbosity >= 4 {
		level = min(level, slog.LevelDebug)
	}
	o := &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(out, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, o)), nil
	}
	return nil, usage("read --logging-format: %q is no format: give text or json", f.format)
}

// deprecated begins the usage of flags that are there for older manifests only.
const deprecated = "deprecated: "

// noteDeprecated logs which deprecated flags were given.
func noteDeprecated(flags *pflag.FlagSet, log *slog.Logger) {
	flags.Visit(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Usage, deprecated) {
			log.Warn("a flag is deprecated", "flag", "--"+flag.Name, "means", flag.Usage)
		}
	})
}
