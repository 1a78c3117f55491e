package kubetest

import (
	"io"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// stream is the body of the answer to a watch: lines that are added until it is
// closed.
type stream struct {
	s                   *Server
	resource, namespace string
	// lines are not read yet. They and closed are guarded by Server.mu.
	lines  [][]byte
	closed bool
	// changed tells the reader to look again.
	changed chan struct{}
	// rest is what was read of a line only in part; it is the reader's.
	rest []byte
}

func newStream(s *Server, resource, namespace string) *stream {
	return &stream{s: s, resource: resource, namespace: namespace, changed: make(chan struct{}, 1)}
}

// add adds a line. The caller has Server.mu.
func (w *stream) add(line []byte) {
	w.lines = append(w.lines, append(line, '\n'))
	w.wake()
}

func (w *stream) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Read is io.Reader.
func (w *stream) Read(to []byte) (int, error) {
	for len(w.rest) == 0 {
		line, closed := w.next()
		if closed {
			return 0, io.EOF
		}
		if line == nil {
			<-w.changed
			continue
		}
		w.rest = line
	}
	n := copy(to, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *stream) next() (line []byte, closed bool) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.closed || len(w.lines) == 0 || w.s.held[w.resource] {
		return nil, w.closed
	}
	line, w.lines[0] = w.lines[0], nil // the array would keep it
	w.lines = w.lines[1:]
	return line, false
}

// Close is io.Closer.
func (w *stream) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.close()
	return nil
}

// close is Close. The caller has Server.mu.
func (w *stream) close() {
	w.closed = true
	delete(w.s.watches, w)
	w.wake()
}

// now is the version of the newest object.
func (s *Server) now() string { return strconv.FormatInt(max(1, s.version), 10) }

// kindOf is the kind of a resource.
func kindOf(resource string) schema.GroupVersionKind {
	for kind := range scheme.Scheme.AllKnownTypes() {
		if plural, _ := meta.UnsafeGuessKindToResource(kind); plural.Resource == resource && kind.Version == "v1" {
			return kind
		}
	}
	return schema.GroupVersionKind{}
}
