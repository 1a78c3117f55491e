package rpc

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// Endpoint is where a server listens. The zero value is not usable.
type Endpoint struct {
	// Network is "unix" or "tcp", as package net spells them.
	Network string
	// Address is the path of the socket, or host:port.
	Address string
}

// String returns the endpoint as a URL, such as unix:///csi/csi.sock.
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// ParseEndpoint reads a CSI endpoint: unix:///path.sock, unix://path.sock (a
// path relative to the working directory), or a bare absolute path. The
// specification ("CSI_ENDPOINT") knows Unix sockets only and wants their names
// to end in .sock.
func ParseEndpoint(s string) (Endpoint, error) {
	e, err := ParseUnix(s)
	if err != nil {
		return Endpoint{}, err
	}
	if !strings.HasSuffix(e.Address, ".sock") {
		return Endpoint{}, fmt.Errorf("parse endpoint %q: the name of a CSI socket ends in .sock", s)
	}
	return e, nil
}

// ParseUnix is ParseEndpoint for sockets that are not CSI's: any name will do.
func ParseUnix(s string) (Endpoint, error) {
	path := s
	scheme, rest, found := strings.Cut(s, "://")
	switch {
	case s == "":
		return Endpoint{}, fmt.Errorf("parse endpoint: it is empty; want unix:///path.sock")
	case found && strings.EqualFold(scheme, "unix"):
		path = rest
	case found:
		return Endpoint{}, fmt.Errorf("parse endpoint %q: scheme %q is not served; want unix:///path.sock", s, scheme)
	case !filepath.IsAbs(s):
		return Endpoint{}, fmt.Errorf("parse endpoint %q: neither unix:///path.sock nor an absolute path", s)
	}
	switch {
	case path == "":
		return Endpoint{}, fmt.Errorf("parse endpoint %q: it names no socket", s)
	case strings.ContainsFunc(path, unicode.IsControl):
		return Endpoint{}, fmt.Errorf("parse endpoint %q: the path contains a control character", s)
	}
	directory := strings.HasSuffix(path, "/")
	path = filepath.Clean(path)
	switch filepath.Base(path) {
	case ".", "..", "/":
		directory = true
	}
	if directory {
		return Endpoint{}, fmt.Errorf("parse endpoint %q: it names a directory", s)
	}
	if strings.HasPrefix(path, "@") {
		return Endpoint{}, fmt.Errorf("parse endpoint %q: abstract sockets are not served, as mounts don't show them to others", s)
	}
	if limit := maxSocketPath(); len(path) > limit {
		return Endpoint{}, fmt.Errorf("parse endpoint %q: the path has %d bytes, and the kernel takes %d (sun_path); use a shorter one", s, len(path), limit)
	}
	return Endpoint{Network: "unix", Address: path}, nil
}

// maxSocketPath is the longest path that fits sockaddr_un with its final NUL.
func maxSocketPath() int {
	switch runtime.GOOS {
	case "linux", "windows", "solaris", "illumos":
		return 107
	default:
		return 103
	}
}
