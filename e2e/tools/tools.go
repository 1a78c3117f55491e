//go:build tools

// Package tools names what e2e/build builds from other modules, so that go.mod
// and go.sum pin it. One module holds them all: they share nearly all packages,
// and two modules would choose different versions and compile them twice.
package tools

import (
	_ "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher"
	_ "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"
	_ "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"
	_ "go.etcd.io/etcd/server/v3"
)
