package rpc

import (
	"fmt"
	"strings"
	"unicode"
)

// The limits of the specification ("Size Limits" and the fields' own
// descriptions), in bytes.
const (
	maxString       = 128
	maxNodeID       = 256
	maxMap          = 4 << 10
	maxTopologyPart = 63
)

// bannedInNames are the control characters that object names must not contain:
// all but tab, line feed and carriage return.
func bannedInNames(r rune) bool {
	return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r'
}

// objectionToName says what is wrong with the name of a volume, snapshot or
// group, or nothing.
func objectionToName(s string) string {
	if text := tooLong(s, maxString); text != "" {
		return text
	}
	if i := strings.IndexFunc(s, bannedInNames); i >= 0 {
		return fmt.Sprintf("contains a banned control character at byte %d", i)
	}
	return ""
}

// objectionToID says what is wrong with an id, or with another word of the
// plugin's vocabulary. Ids are stricter than names: no id that a driver made
// contains a line feed.
func objectionToID(s string, limit int) string {
	if text := tooLong(s, limit); text != "" {
		return text
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Sprintf("contains a control character at byte %d", i)
	}
	return ""
}

func tooLong(s string, limit int) string {
	if len(s) <= limit {
		return ""
	}
	return fmt.Sprintf("has %d bytes, more than %d", len(s), limit)
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// word reports whether s is of the form that topology keys and values have:
// alphanumeric at both ends, alphanumerics and the given others between.
func word(s, others string) bool {
	if s == "" || len(s) > maxTopologyPart || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !alphanumeric(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}

// objectionToTopologyKey says what is wrong with a key such as
// "com.company.example/zone".
func objectionToTopologyKey(key string) string {
	if text := tooLong(key, maxString); text != "" {
		return "a key " + text
	}
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	if !word(name, "-_.") {
		return fmt.Sprintf("the name of key %q must be 1 to 63 of [A-Za-z0-9-_.], alphanumeric at both ends", key)
	}
	if found && (!word(prefix, "-.") || prefix != strings.ToLower(prefix) || strings.Contains(prefix, "..")) {
		return fmt.Sprintf("the prefix of key %q must be a domain name in lower case of 1 to 63 bytes", key)
	}
	return ""
}

// objectionToTopologyValue says what is wrong with a segment. Kubernetes allows
// empty label values, and the specification does not.
func objectionToTopologyValue(key, value string) string {
	if word(value, "-_.") {
		return ""
	}
	if text := tooLong(value, maxTopologyPart); text != "" {
		return fmt.Sprintf("the value of key %q %s", key, text)
	}
	return fmt.Sprintf("the value %q of key %q must be 1 to 63 of [A-Za-z0-9-_.], alphanumeric at both ends", value, key)
}

// serviceAccountTokens is the key under which a kubelet sends tokens as a secret
// (CSIDriver.spec.serviceAccountTokenInSecrets), though it has not the form of a key.
const serviceAccountTokens = "csi.storage.k8s.io/serviceAccount.tokens"

// secretKey reports whether the key of a secret has the form of "Secrets
// Requirements", or is the one that every kubelet sends without it.
func secretKey(key string) bool {
	if key == serviceAccountTokens {
		return true
	}
	for i := range len(key) {
		if c := key[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return key != ""
}
