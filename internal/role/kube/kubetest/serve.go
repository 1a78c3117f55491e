package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// roundTripper answers requests without a network.
type roundTripper struct{ s *Server }

// RoundTrip is http.RoundTripper.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	request := parse(r)
	if r.URL.Query().Get("watch") == "true" {
		return t.s.watch(r, request), nil
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		request.Body = string(body)
	}
	if request.Verb != "get" && request.Verb != "list" {
		t.s.mu.Lock()
		t.s.writes = append(t.s.writes, request)
		t.s.mu.Unlock()
	}
	if t.s.Intercept != nil {
		if err := t.s.Intercept(r.Context(), request); err != nil {
			return refusal(r, err), nil
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	o, err := t.s.do(request, r.Header.Get("Content-Type"))
	if err != nil {
		return refusal(r, err), nil
	}
	return answer(r, http.StatusOK, encode(o)), nil
}

func refusal(r *http.Request, err *apierrors.StatusError) *http.Response {
	is := err.ErrStatus
	is.Kind, is.APIVersion = "Status", "v1"
	return answer(r, int(is.Code), encode(is))
}

func answer(r *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

// parse reads what a request is for from its path.
func parse(r *http.Request) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" {
		parts = parts[1:] // the group
	}
	parts = parts[2:] // api or group, version
	var request Request
	if parts[0] == "namespaces" && len(parts) > 2 {
		request.Namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	request.Resource, request.Name, request.Subresource = parts[0], parts[1], parts[2]
	request.Verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	if request.Verb == "get" && request.Name == "" {
		request.Verb = "list"
	}
	return request
}

// do does what is asked. The caller has mu.
func (s *Server) do(r Request, contentType string) (object, *apierrors.StatusError) {
	at := key{r.Resource, r.Namespace, r.Name}
	resource := schema.GroupResource{Resource: r.Resource}
	switch r.Verb {
	case "list":
		return s.list(r), nil
	case "create":
		o := decode([]byte(r.Body))
		at.name, _ = metadataOf(o)["name"].(string)
		if _, known := s.objects[at]; known {
			return nil, apierrors.NewAlreadyExists(resource, at.name)
		}
		s.store(at, o)
		return o, nil
	}
	old, known := s.objects[at]
	if !known {
		return nil, apierrors.NewNotFound(resource, r.Name)
	}
	switch r.Verb {
	case "delete":
		s.remove(at)
		return old, nil
	case "update":
		o := decode([]byte(r.Body))
		if version := metadataOf(o)["resourceVersion"]; version != nil && version != metadataOf(old)["resourceVersion"] {
			return nil, apierrors.NewConflict(resource, r.Name, nil)
		}
		s.store(at, ofStatus(old, o, r.Subresource == "status"))
		return s.last(at, o), nil
	case "patch":
		edited, err := patched(encode(old), []byte(r.Body), contentType, r.Resource)
		if err == nil {
			err = permitted(metadataOf(old), metadataOf(decode(edited)))
		}
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", resource, r.Name, err.Error(), 0, false)
		}
		o := ofStatus(old, decode(edited), r.Subresource == "status")
		s.store(at, o)
		if _, known := s.objects[at]; !known {
			// The end of an object has a version, the answer to what caused it
			// has the one before.
			o = decode(encode(o))
			metadataOf(o)["resourceVersion"] = metadataOf(old)["resourceVersion"]
		}
		return o, nil
	}
	return old, nil
}

// last is an object as it is stored, or as it was last.
func (s *Server) last(at key, o object) object {
	if is, known := s.objects[at]; known {
		return is
	}
	return o
}

func patched(old, patch []byte, contentType, resource string) ([]byte, error) {
	switch types.PatchType(contentType) {
	case types.StrategicMergePatchType:
		example, err := scheme.Scheme.New(kindOf(resource))
		if err != nil {
			return nil, err
		}
		return strategicpatch.StrategicMergePatch(old, patch, example)
	case types.JSONPatchType:
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(old)
	}
	return jsonpatch.MergePatch(old, patch)
}

// permitted is what the API server checks of every change: an object keeps its uid,
// and one that is being deleted gets no finalizer.
func permitted(old, edited object) error {
	if old["uid"] != edited["uid"] {
		return fmt.Errorf("metadata.uid: Invalid value: %q: field is immutable", edited["uid"])
	}
	had, _ := old["finalizers"].([]any)
	has, _ := edited["finalizers"].([]any)
	for _, finalizer := range has {
		if old["deletionTimestamp"] != nil && !slices.Contains(had, finalizer) {
			return fmt.Errorf("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers %q", finalizer)
		}
	}
	return nil
}

func (s *Server) list(r Request) object {
	items := []any{}
	for at, o := range s.objects {
		if at.resource == r.Resource && (r.Namespace == "" || r.Namespace == at.namespace) {
			items = append(items, o)
		}
	}
	return object{"metadata": object{"resourceVersion": s.now()}, "items": items}
}

// watch begins a watch. What is there already is told first, as a client asks for
// that does not list.
//
// There is no history: a watch cannot go on from a version before the last change.
func (s *Server) watch(r *http.Request, request Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, err := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	if !initial && err == nil && from < s.changed[request.Resource] {
		return refusal(r, apierrors.NewResourceExpired("there is no history"))
	}
	w := newStream(s, request.Resource, request.Namespace)
	if initial {
		for at, o := range s.objects {
			if at.resource == request.Resource && (request.Namespace == "" || request.Namespace == at.namespace) {
				w.add(encode(object{"type": "ADDED", "object": o}))
			}
		}
		kind := kindOf(request.Resource)
		w.add(encode(object{"type": "BOOKMARK", "object": object{
			"kind": kind.Kind, "apiVersion": kind.GroupVersion().String(),
			"metadata": object{"resourceVersion": s.now(), "annotations": object{"k8s.io/initial-events-end": "true"}},
		}}))
	}
	s.watches[w] = true
	context.AfterFunc(r.Context(), func() { _ = w.Close() })
	response := answer(r, http.StatusOK, nil)
	response.Body = w
	return response
}
