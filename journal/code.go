package journal

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
)

// CodeName is the name of a gRPC code as the specification writes it, such as
// NOT_FOUND.
func CodeName(c codes.Code) string {
	switch c {
	case codes.OK:
		return "OK"
	case codes.Canceled: // the canonical name has two of them
		return "CANCELLED"
	}
	var b strings.Builder
	for i, r := range c.String() {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// ParseCode reads the name of a gRPC code as the specification writes it, such as
// NOT_FOUND.
func ParseCode(name string) (codes.Code, error) {
	quoted, err := json.Marshal(name)
	if err != nil {
		return codes.Unknown, fmt.Errorf("read the code %q: %w", name, err)
	}
	var c codes.Code
	if name == "CANCELED" { // as the specification of gRPC for Go has it
		return codes.Canceled, nil
	}
	if err := c.UnmarshalJSON(quoted); err != nil {
		return codes.Unknown, fmt.Errorf("%q is no gRPC code such as UNAVAILABLE", name)
	}
	return c, nil
}
