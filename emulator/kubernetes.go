package emulator

import (
	"maps"
	"strings"
)

// kubernetesPrefix begins the keys of parameters and volume contexts that
// Kubernetes and its sidecars add. They are all that the emulator knows of
// Kubernetes.
const kubernetesPrefix = "csi.storage.k8s.io/"

// ephemeralKey is "true" in the volume context of an inline volume
// (CSIDriver.spec.podInfoOnMount).
const ephemeralKey = kubernetesPrefix + "ephemeral"

// tokensKey is the key of the volume context for service account tokens
// (CSIDriver.spec.tokenRequests).
const tokensKey = kubernetesPrefix + "serviceAccount.tokens"

// withoutKubernetes returns the parameters of a class without the names of
// claims and snapshots that the sidecars add with --extra-create-metadata.
func withoutKubernetes(parameters map[string]string) map[string]string {
	out := maps.Clone(parameters)
	maps.DeleteFunc(out, func(key, _ string) bool { return strings.HasPrefix(key, kubernetesPrefix) })
	if len(out) == 0 {
		return nil
	}
	return out
}
