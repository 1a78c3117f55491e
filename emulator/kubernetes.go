package emulator

// The keys of volume contexts that Kubernetes adds. They are all that the
// emulator knows of Kubernetes.
const (
	// ephemeralKey is "true" in the volume context of an inline volume
	// (CSIDriver.spec.podInfoOnMount).
	ephemeralKey = "csi.storage.k8s.io/ephemeral"
)

// sizeKey is the volume attribute with which a pod gives its inline volume a
// size: bytes, or a number with a suffix such as 64Mi.
const sizeKey = "size"
