// Package link is the one authenticated connection between a node process and
// the array process of a driver.
//
// The array serves it with a Server, a node connects with a Client. Over it the
// node asks whether volumes exist and attaches them where no orchestrator does,
// and the array asks nodes to hold a volume still while it cuts a snapshot. The
// protocol is in linkpb/link.proto; it is not CSI, and nothing but csiemu
// speaks it.
//
// Both ends prove by TLS that they have the same secret (SharedSecret). Errors
// keep their kind: errors.Is(err, backends.ErrNotFound) holds on the other side.
package link
