//go:build linux

package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/csiemu/csiemu/backends"
	"github.com/csiemu/csiemu/backends/loop"
	"github.com/csiemu/csiemu/backends/memory"
	"github.com/csiemu/csiemu/backends/tmpfs"
	"github.com/csiemu/csiemu/emulator"
	"github.com/csiemu/csiemu/internal/step"
)

// spec is what a child process is told.
type spec struct {
	Backend, StateDir, Socket string
	// Disabled are the capabilities that the driver does not have.
	Disabled []string
	// KillAtStart has the process kill itself at the first point of its start
	// that is not among Survive.
	KillAtStart bool
	Survive     []string
	// KillAt has it kill itself at the n-th point of its start, if it is not 0.
	KillAt int
}

// The lines that a child writes: each point of its start, the point at which it
// kills itself, and that it serves.
const (
	pointLine  = "point "
	killedLine = "killed "
	readyLine  = "ready"
)

// nodeName is the one node of the children.
const nodeName = "node-1"

// killAtKey is the metadata of a call that is to be killed at so many points
// from its begin, failAtKey of one that is to fail there; pointsKey, in the
// trailer, lists the points it passed.
const (
	killAtKey = "csiemu-kill-at"
	failAtKey = "csiemu-fail-at"
	pointsKey = "csiemu-points"
)

var errHere = errors.New("a test has the call fail here")

// runChild serves until standard input ends.
func runChild(encoded string) error {
	var s spec
	if err := json.Unmarshal([]byte(encoded), &s); err != nil {
		return err
	}
	backend, err := s.backend()
	if err != nil {
		return err
	}
	profile := emulator.DefaultProfile(s.Backend)
	for _, name := range s.Disabled {
		profile.Disable(name)
	}
	e, err := emulator.New(step.With(context.Background(), s.listenToStart()), emulator.Config{
		Backend: backend, StateDir: s.StateDir, Profile: profile, Nodes: []emulator.Node{{Name: nodeName}},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(listenToCall))
	if err := e.Register("", server); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.GracefulStop()
	}()
	fmt.Println(readyLine)
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return e.Close()
}

func (s spec) backend() (backends.Backend, error) {
	switch s.Backend {
	case "loop":
		return loop.New(loop.Options{Dir: s.StateDir})
	case "tmpfs":
		return tmpfs.New(tmpfs.Options{Dir: s.StateDir})
	default:
		return memory.New(memory.Options{}), nil
	}
}

// listenToStart tells the points of the start, and is killed at one.
func (s spec) listenToStart() step.Listener {
	passed := 0
	return func(_ context.Context, name string) error {
		fmt.Println(pointLine + name)
		passed++
		if passed == s.KillAt || (s.KillAtStart && !slices.Contains(s.Survive, name)) {
			killHere(name)
		}
		return nil
	}
}

// listenToCall counts the points of a call, and is killed or fails at the one
// that the caller asks for.
func listenToCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	killAt, failAt := number(md.Get(killAtKey)), number(md.Get(failAtKey))
	var names []string // a call does its work in one goroutine
	listening := step.With(ctx, func(_ context.Context, name string) error {
		names = append(names, name)
		switch len(names) {
		case killAt:
			killHere(name)
		case failAt:
			return errHere
		}
		return nil
	})
	if killAt == 0 && failAt == 0 {
		listening = ctx
	}
	resp, err := next(listening, req)
	return resp, errors.Join(err, grpc.SetTrailer(ctx, metadata.Pairs(pointsKey, strings.Join(names, " "))))
}

// number is the number that a caller sent, 0 for none.
func number(sent []string) int {
	if len(sent) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(sent[0]) // what is none is none of ours
	return n
}

// killHere ends the process as kill -9 does: nothing is cleaned up, deferred or
// flushed.
func killHere(name string) {
	fmt.Println(killedLine + name)
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}
