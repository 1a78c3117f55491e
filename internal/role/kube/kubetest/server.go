// Package kubetest is an API server in memory, for tests of roles: objects, watches,
// patches, finalizers and deletion behave as those of the real one, it can refuse,
// be slow and have its watches lag, and it knows which writes were made.
//
// It serves no validation, no defaults and no access control. It works inside
// testing/synctest.
package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Server is an API server. It is safe for concurrent use.
type Server struct {
	// Intercept, unless nil, is called before each request that is not a watch,
	// from many goroutines at once. It may wait; an error is the answer.
	// It must be set before the first request.
	Intercept func(context.Context, Request) *apierrors.StatusError

	mu      sync.Mutex
	version int64
	uids    int64
	objects map[key]object
	watches map[*stream]bool
	held    map[string]bool
	// changed is the version of the last change of a resource.
	changed map[string]int64
	writes  []Request
}

// Request is one request.
type Request struct {
	// Verb is get, list, create, update, patch or delete.
	Verb string
	// Resource is the plural, as in volumeattachments; Subresource is status or "".
	Resource, Subresource string
	Namespace, Name       string
	// Body is what was sent.
	Body string
}

// String is the request in a few words, as in "patch volumeattachments/va/status".
func (r Request) String() string {
	return strings.TrimRight(fmt.Sprintf("%s %s/%s/%s", r.Verb, r.Resource, r.Name, r.Subresource), "/")
}

type (
	key    struct{ resource, namespace, name string }
	object = map[string]any
)

// New makes a server with objects.
func New(objects ...runtime.Object) *Server {
	s := &Server{objects: map[key]object{}, watches: map[*stream]bool{}, held: map[string]bool{}, changed: map[string]int64{}}
	for _, o := range objects {
		s.Put(o)
	}
	return s
}

// Client is a client, without a limit of its own.
func (s *Server) Client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{
		Host: "http://kubetest", QPS: -1, Transport: roundTripper{s}, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
}

// Put creates or replaces an object, without an interception and without being a
// write of the client.
func (s *Server) Put(o runtime.Object) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		panic(err)
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(key{plural.Resource, accessor.GetNamespace(), accessor.GetName()}, decode(encode(o)))
}

// Get reads an object into o, and reports whether it is there.
func (s *Server) Get(resource, namespace, name string, o any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, ok := s.objects[key{resource, namespace, name}]
	if ok {
		if err := json.Unmarshal(encode(is), o); err != nil {
			panic(err)
		}
	}
	return ok
}

// Edit changes an object as another client would.
func (s *Server) Edit(resource, namespace, name string, edit func(object map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := key{resource, namespace, name}
	is := decode(encode(s.objects[at]))
	edit(is)
	s.store(at, is)
}

// Delete deletes an object as another client would: one with finalizers is marked.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(key{resource, namespace, name})
}

// Writes are the writes of clients so far, those that were refused too.
func (s *Server) Writes() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.writes...)
}

// Hold has the watches of a resource tell nothing until Release.
func (s *Server) Hold(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[resource] = true
}

// Release has the watches tell what they held back.
func (s *Server) Release(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, resource)
	for w := range s.watches {
		if w.resource == resource {
			w.wake()
		}
	}
}

// Cut ends the watches of a resource, with what they hold back.
func (s *Server) Cut(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		if w.resource == resource {
			w.close()
		}
	}
}

// store stores an object with its next version. One that is to be deleted and has
// no finalizer left is gone.
func (s *Server) store(at key, o object) {
	s.version++
	metadata := metadataOf(o)
	metadata["resourceVersion"] = strconv.FormatInt(s.version, 10)
	if metadata["uid"] == nil {
		s.uids++
		metadata["uid"] = fmt.Sprintf("00000000-0000-0000-0000-%012d", s.uids)
	}
	_, known := s.objects[at]
	finalizers, _ := metadata["finalizers"].([]any)
	switch {
	case metadata["deletionTimestamp"] != nil && len(finalizers) == 0:
		delete(s.objects, at)
		s.tell(at, "DELETED", o)
	case known:
		s.objects[at] = o
		s.tell(at, "MODIFIED", o)
	default:
		s.objects[at] = o
		s.tell(at, "ADDED", o)
	}
}

func (s *Server) remove(at key) {
	o := decode(encode(s.objects[at]))
	metadata := metadataOf(o)
	if metadata["deletionTimestamp"] == nil {
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	s.store(at, o)
}

func (s *Server) tell(at key, kind string, o object) {
	s.changed[at.resource] = s.version
	line := encode(map[string]any{"type": kind, "object": o})
	for w := range s.watches {
		if w.resource == at.resource && (w.namespace == "" || w.namespace == at.namespace) {
			w.add(line)
		}
	}
}

func metadataOf(o object) object {
	metadata, _ := o["metadata"].(object)
	if metadata == nil {
		metadata = object{}
		o["metadata"] = metadata
	}
	return metadata
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decode(b []byte) object {
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		panic(err)
	}
	return o
}

// ofStatus is an object with only the status of another one, or all but it.
func ofStatus(old, edited object, status bool) object {
	base, other := edited, old
	if status {
		base, other = old, edited
	}
	result := maps.Clone(base)
	delete(result, "status")
	if s, has := other["status"]; has {
		result["status"] = s
	}
	return result
}
