package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// check is a row that runs: its test, its driver, and what it has made there.
type check struct {
	T
	*Target
	ctx context.Context

	identity   csi.IdentityClient
	controller csi.ControllerClient
	group      csi.GroupControllerClient
	metadata   csi.SnapshotMetadataClient
	node       csi.NodeClient
	// nodeIdentity is the Identity service at the node's endpoint.
	nodeIdentity csi.IdentityClient

	has   map[need]bool
	undos []*undo
	// run is part of every name that the row gives to something.
	run   string
	root  string
	paths int
}

func newCheck(t T, target *Target) *check {
	t.Helper()
	random := make([]byte, 4)
	_, _ = rand.Read(random) // which never fails
	c := &check{T: t, Target: target, ctx: t.Context(), run: hex.EncodeToString(random)}
	if target.Controller == nil {
		c.fatalf("the target has no connection: set Target.Controller")
	}
	array := conn{target.Controller, target.timeout(), target.Secrets}
	node := array
	if target.Node != nil {
		node.ClientConnInterface = target.Node
	}
	c.identity, c.nodeIdentity = csi.NewIdentityClient(array), csi.NewIdentityClient(node)
	c.controller, c.group = csi.NewControllerClient(array), csi.NewGroupControllerClient(array)
	c.metadata, c.node = csi.NewSnapshotMetadataClient(array), csi.NewNodeClient(node)
	t.Cleanup(c.undoAll)
	c.ask()
	return c
}

// fatalf ends the row as failed.
func (c *check) fatalf(format string, args ...any) {
	c.Helper()
	c.Errorf(format, args...)
	c.FailNow()
}

// name is a name that nothing else has.
func (c *check) name(what string) string { return "conformance-" + c.run + "-" + what }

// noID is an id that nothing has.
func (c *check) noID() string { return "conformance-" + c.run + "-nothing" }

// ok ends the row if a call failed.
func (c *check) ok(err error) {
	c.Helper()
	if err != nil {
		c.form(err)
		c.fatalf("want OK, got %s", describe(err))
	}
}

// code fails the row unless the answer has one of these codes, a message for
// people and no details. It reports whether the code is one of them.
func (c *check) code(err error, want ...codes.Code) bool {
	c.Helper()
	c.form(err)
	if !slices.Contains(want, status.Code(err)) {
		names := make([]string, len(want))
		for i, w := range want {
			names[i] = codeName(w)
		}
		c.Errorf("want %s, got %s", strings.Join(names, " or "), describe(err))
		return false
	}
	return true
}

// form fails the row if an error is not of the form that the error scheme
// demands.
func (c *check) form(err error) {
	c.Helper()
	s := status.Convert(err)
	if s.Code() == codes.OK {
		return
	}
	if s.Message() == "" || !utf8.ValidString(s.Message()) {
		c.Errorf("want a message for people in status.message, got %q with %s", s.Message(), codeName(s.Code()))
	}
	if n := len(s.Proto().GetDetails()); n > 0 {
		c.Errorf("want empty status.details, got %d with %s", n, describe(err))
	}
}

// equal fails the row unless two values are the same.
func equal[V comparable](c *check, what string, want, got V) {
	c.Helper()
	if want != got {
		c.Errorf("want %s %v, got %v", what, want, got)
	}
}

func describe(err error) string {
	s := status.Convert(err)
	if s.Code() == codes.OK {
		return "OK"
	}
	return fmt.Sprintf("%s (%s)", codeName(s.Code()), s.Message())
}

// codeName is a code as the specification spells it.
func codeName(code codes.Code) string {
	var b strings.Builder
	for i, r := range code.String() {
		if i > 0 && r >= 'A' && r <= 'Z' && code != codes.OK {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}

// path is the path of a new directory, made if make is set, in a directory of
// the row's own. The row takes it away at its end.
func (c *check) path(what string, make bool) string {
	c.Helper()
	if c.root == "" {
		dir := c.Dir
		if dir == "" {
			dir = os.TempDir()
		}
		c.root = c.mkdir(filepath.Join(dir, c.run))
	}
	c.paths++
	path := filepath.Join(c.root, fmt.Sprintf("%s-%d", what, c.paths))
	if make {
		return c.mkdir(path)
	}
	return path
}

func (c *check) mkdir(path string) string {
	c.Helper()
	if err := c.makeDir(c.ctx, path); err != nil {
		c.fatalf("make a directory for the node: %v", err)
	}
	c.undoLater("directory "+path, func(ctx context.Context) error { return c.removeDir(ctx, path) })
	return path
}
