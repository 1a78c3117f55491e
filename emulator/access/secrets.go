package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csiemu/csiemu/backends"
)

// The StorageClass parameters with which a class demands secrets.
const (
	// SecretsForParameter lists the RPCs that must carry the secret, by their
	// names with commas between them.
	SecretsForParameter = "authFor"
	// SecretKeyParameter is the key of the secret; without it DefaultSecretKey.
	SecretKeyParameter = "authKey"
	// SecretDigestParameter is the SHA-256 of the secret's value, in hexadecimal
	// (printf %s "$value" | sha256sum). Without it any value that is not empty
	// will do.
	SecretDigestParameter = "authSHA256"
)

// DefaultSecretKey is the key of the demanded secret where a class names none.
const DefaultSecretKey = "token"

// SecretsKey is "demanded" in the publish context of a volume whose class demands
// secrets, so that nodes need not ask the array for the others.
const SecretsKey = "csiemu.dev/secrets"

// demandable are the RPCs that name a volume or snapshot, or make one, and that
// carry secrets.
var demandable = []string{
	"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
	"ValidateVolumeCapabilities", "ControllerExpandVolume", "ControllerModifyVolume", "ControllerGetVolumeHealth",
	"CreateSnapshot", "DeleteSnapshot", "GetSnapshot",
	"CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot", "GetVolumeGroupSnapshot",
	"GetMetadataAllocated", "GetMetadataDelta",
	"NodeStageVolume", "NodePublishVolume", "NodeExpandVolume",
}

// CanDemand reports whether a class can demand secrets for an RPC.
func CanDemand(method string) bool { return slices.Contains(demandable, method) }

// Demand is what the class of a volume wants to be told before it serves a call.
// It is kept in records, so it holds a digest and never a secret. The zero value
// demands nothing.
type Demand struct {
	// Methods are the RPCs, by their names, that must carry the secret.
	Methods []string `json:"methods,omitempty"`
	Key     string   `json:"key,omitempty"`
	// SHA256 is the digest of the right value in hexadecimal; empty accepts any.
	SHA256 string `json:"sha256,omitempty"`
}

// IsZero is true where nothing is demanded.
func (d Demand) IsZero() bool { return len(d.Methods) == 0 }

// TakeDemand takes the demand out of a class's parameters and returns the rest.
// backends.ErrInvalid is returned for an RPC that cannot carry it.
func TakeDemand(parameters map[string]string) (Demand, map[string]string, error) {
	list, demands := parameters[SecretsForParameter]
	rest := maps.Clone(parameters)
	for _, key := range []string{SecretsForParameter, SecretKeyParameter, SecretDigestParameter} {
		if _, given := rest[key]; given && !demands {
			return Demand{}, nil, fmt.Errorf("parameter %s says nothing without %s, the RPCs that are to carry the secret: %w", key, SecretsForParameter, backends.ErrInvalid)
		}
		delete(rest, key)
	}
	if !demands {
		return Demand{}, rest, nil
	}
	d := Demand{Key: parameters[SecretKeyParameter], SHA256: strings.ToLower(parameters[SecretDigestParameter])}
	if d.Key == "" {
		d.Key = DefaultSecretKey
	}
	if raw, err := hex.DecodeString(d.SHA256); err != nil || (len(raw) != 0 && len(raw) != sha256.Size) {
		return Demand{}, nil, fmt.Errorf("parameter %s is no SHA-256 in hexadecimal: %w", SecretDigestParameter, backends.ErrInvalid)
	}
	for method := range strings.SplitSeq(list, ",") {
		method = strings.TrimSpace(method)
		if !CanDemand(method) {
			return Demand{}, nil, fmt.Errorf("parameter %s: %q is no RPC that carries secrets for a volume or snapshot: %w", SecretsForParameter, method, backends.ErrInvalid)
		}
		d.Methods = append(d.Methods, method)
	}
	return d, rest, nil
}

// Check returns backends.ErrUnauthenticated unless the secrets of a call, of which
// it gets the digests, are those that are demanded. The error tells no secret.
func (d Demand) Check(method string, digests map[string]string) error {
	if !slices.Contains(d.Methods, method) {
		return nil
	}
	have := digests[d.Key]
	switch {
	case have == "" || have == emptyDigest:
		return fmt.Errorf("%s needs the secret %q, by the class of the volume: %w", method, d.Key, backends.ErrUnauthenticated)
	case d.SHA256 != "" && subtle.ConstantTimeCompare([]byte(have), []byte(d.SHA256)) != 1:
		return fmt.Errorf("%s: the secret %q is not the right one: %w", method, d.Key, backends.ErrUnauthenticated)
	}
	return nil
}

var emptyDigest = digest("")

// Digests are the SHA-256 of secrets, in hexadecimal, by their keys: what may be
// handed on, compared and kept.
func Digests(secrets map[string]string) map[string]string {
	if len(secrets) == 0 {
		return nil
	}
	out := make(map[string]string, len(secrets))
	for key, value := range secrets {
		out[key] = digest(value)
	}
	return out
}

func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}
