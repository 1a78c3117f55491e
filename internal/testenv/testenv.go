// Package testenv gives tests what they need of the machine, and sees to it that
// the machine gets it back.
//
// A package whose tests touch devices, mounts, files or processes has
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
// and calls Need first in each test that not every machine can run. The package
// imports nothing of csiemu but internal/kernel, so that every package can use
// it in its tests.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/csiemu/csiemu/internal/kernel"
)

// RequireVariable is the environment variable that lists, separated by commas,
// the features that must be there: a test that needs one of them fails instead
// of being skipped. "all" stands for every feature.
const RequireVariable = "CSIEMU_REQUIRE"

// Need skips the test where the machine lacks a feature, with the reason, or
// fails it where $CSIEMU_REQUIRE says that the feature must be there.
func Need(tb testing.TB, features ...kernel.Feature) {
	tb.Helper()
	for _, f := range features {
		err := kernel.Probe(tb.Context(), f)
		switch {
		case err == nil:
		case !errors.Is(err, kernel.ErrNotSupported):
			tb.Fatalf("ask for %s: %v", f, err)
		case required(os.Getenv(RequireVariable), f):
			tb.Fatalf("$%s says that %s must be here: %v", RequireVariable, f, err)
		default:
			tb.Skipf("needs %s: %v", f, err)
		}
	}
}

// Chromium is what NeedChromium looks for, in RequireVariable.
const Chromium kernel.Feature = "chromium"

// NeedChromium returns the path of the browser that tests of pages run, and is Need
// where there is none.
func NeedChromium(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if required(os.Getenv(RequireVariable), Chromium) {
		tb.Fatalf("$%s says that %s must be here: it is not in PATH", RequireVariable, Chromium)
	}
	tb.Skip("needs chromium, which is not in PATH")
	return ""
}

// required says whether a list of features holds f.
func required(list string, f kernel.Feature) bool {
	return slices.ContainsFunc(split(list), func(s string) bool { return s == "all" || s == string(f) })
}

// checkRequired refuses names that are no features, as a misspelt one would let
// tests be skipped that must not be.
func checkRequired(list string) error {
	known := append(kernel.Features(), kernel.ReflinkFeature, kernel.DirectIOFeature, Chromium)
	for _, s := range split(list) {
		if s != "all" && !slices.Contains(known, kernel.Feature(s)) {
			return fmt.Errorf("$%s names %q, which is no feature; known are all, %v", RequireVariable, s, known)
		}
	}
	return nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
