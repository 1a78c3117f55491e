// Package e2e lets what orchestrators run in production call csiemu: the sidecars
// of Kubernetes and its kubelet, as processes of their own, beside a real API server.
//
// It is a module of its own, so that users of csiemu do not get its requirements.
// The programs are built from their Go modules once (build), pinned in
// tools/go.mod, and started by control, and with nodes by cluster. `make e2e` does
// it all; docs/callers.md is what came out, README.md is how it works.
package e2e
