package kube

import "encoding/json"

// Patch is a JSON patch (RFC 6902), for the status of an object. Its operations
// happen all or not at all.
type Patch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// ForUID begins a patch that fails for any other object of the same name. An
// empty UID tests nothing.
func ForUID(uid string) Patch {
	if uid == "" {
		return nil
	}
	return Patch{{"test", "/metadata/uid", uid}}
}

// Set sets a value. The place must exist, but for its last part.
func (p Patch) Set(path string, value any) Patch { return append(p, operation{"add", path, value}) }

// Bytes is the patch as the API server takes it, with types.JSONPatchType.
func (p Patch) Bytes() []byte { return encoded(p) }

// Metadata is a change of an object's finalizers and annotations, as a strategic
// merge patch. Finalizers and annotations that it does not name stay, whatever they
// are by the time it arrives: a list of all, as in a merge patch, brings those back
// that others have removed meanwhile (kubernetes-csi/external-provisioner#1217), and
// a place in the list, as in a JSON patch, fails when others have changed it.
//
// The API server refuses a finalizer for an object that is being deleted.
type Metadata struct {
	// UID, unless empty, has the patch fail for another object of the same name.
	UID string `json:"uid,omitempty"`
	// Add and Remove are finalizers. One that is there already is not added again,
	// and one that is not there is not missed.
	Add    []string `json:"finalizers,omitempty"`
	Remove []string `json:"$deleteFromPrimitiveList/finalizers,omitempty"`
	// Annotations are set.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Changes reports whether it changes anything.
func (m Metadata) Changes() bool { return len(m.Add)+len(m.Remove)+len(m.Annotations) > 0 }

// Bytes is the patch as the API server takes it, with
// types.StrategicMergePatchType.
func (m Metadata) Bytes() []byte { return encoded(map[string]Metadata{"metadata": m}) }

// encoded is a value as JSON. Values of patches cannot fail to be written.
func encoded(value any) []byte {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value was no value of JSON
	}
	return b
}
