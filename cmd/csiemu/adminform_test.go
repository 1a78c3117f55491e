package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What YAML says is what JSON says: no text becomes a number, a truth or a date.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":"true","b":"1","c":"x: y","d":"","e":[],"f":{},"g":"null","h":1.5,"i":"a\nb","j":"- x","k":null,"l":"2026-11-30T22:12:22Z","m":"#","n":"0x1F","o":"yes","p":"~"}`,
		`[]`, `[[1,2],{"a":[{"b":"c"}]}]`, `"text"`,
		`{"z":1,"a":{"y":2,"b":3}}`,
	} {
		var out strings.Builder
		require.NoError(t, writeYAML(&out, json.RawMessage(text)))
		var have any
		require.NoError(t, yaml.Unmarshal([]byte(out.String()), &have), out.String())
		encoded, err := json.Marshal(have)
		require.NoError(t, err)
		require.JSONEq(t, text, string(encoded), out.String())
	}
	var out strings.Builder
	require.NoError(t, writeYAML(&out, json.RawMessage(`{"z":"text","a":[{"c":1}],"e":[]}`)))
	require.Equal(t, "z: text\na:\n  - c: 1\ne: []\n", out.String())
}
