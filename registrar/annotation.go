package registrar

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// readMap reads an annotation that is a JSON map with drivers as keys.
func readMap[V any](n *corev1.Node, annotation string) (map[string]V, error) {
	m := map[string]V{}
	text := n.Annotations[annotation]
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return nil, fmt.Errorf("read annotation %s, which is %q: %w: mend or remove it", annotation, text, err)
	}
	if m == nil { // null
		m = map[string]V{}
	}
	return m, nil
}

// writeMap writes such an annotation; an empty map removes it.
func writeMap[V any](n *corev1.Node, annotation string, m map[string]V) error {
	if len(m) == 0 {
		delete(n.Annotations, annotation)
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write annotation %s: %w", annotation, err)
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotation] = string(text)
	return nil
}

func setInMap[V any](n *corev1.Node, annotation, driver string, value V) error {
	m, err := readMap[V](n, annotation)
	if err != nil {
		return err
	}
	m[driver] = value
	return writeMap(n, annotation, m)
}

func removeFromMap[V any](n *corev1.Node, annotation, driver string) error {
	m, err := readMap[V](n, annotation)
	if err != nil {
		return err
	}
	if _, has := m[driver]; !has {
		return nil
	}
	delete(m, driver)
	return writeMap(n, annotation, m)
}
