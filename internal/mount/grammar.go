//go:build linux

package mount

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fsconfig(2) refuses longer keys and values with a bare EINVAL.
const maxOptionBytes = 255

// cutEntry takes the first option from a list that is not empty. An option
// without any letter, as between two commas, is the zero entry.
func cutEntry(list string) (e entry, rest string, err error) {
	end := strings.IndexAny(list, ",=")
	if end < 0 {
		end = len(list)
	}
	e.key = list[:end]
	if err := checkKey(e.key); err != nil {
		return entry{}, "", err
	}
	rest = list[end:]
	if strings.HasPrefix(rest, "=") {
		if e.key == "" {
			return entry{}, "", errors.New("a value has no option in front of it")
		}
		e.valued = true
		if e.value, rest, err = cutValue(rest[1:]); err != nil {
			return entry{}, "", fmt.Errorf("option %q: %w", e.key, err)
		}
	}
	return e, strings.TrimPrefix(rest, ","), nil
}

// cutValue takes a value from the front of text; rest is empty or begins with
// a comma.
func cutValue(text string) (value, rest string, err error) {
	if quoted, ok := strings.CutPrefix(text, `"`); ok {
		value, rest, ok = strings.Cut(quoted, `"`)
		if !ok {
			return "", "", errors.New("its quote does not end")
		}
		if rest != "" && rest[0] != ',' {
			return "", "", errors.New("there is text behind its quote")
		}
	} else {
		end := strings.IndexByte(text, ',')
		if end < 0 {
			end = len(text)
		}
		value, rest = text[:end], text[end:]
		if strings.Contains(value, `"`) {
			return "", "", errors.New("it has a quote that is not around the whole value")
		}
		if strings.HasSuffix(value, `\`) && rest != "" {
			return "", "", errors.New("it has a backslash before a comma: put the value in double quotes")
		}
	}
	return value, rest, checkValue(value)
}

func checkValue(value string) error {
	switch {
	case len(value) > maxOptionBytes:
		return fmt.Errorf("its value has %d bytes, more than the %d that the kernel takes", len(value), maxOptionBytes)
	case !utf8.ValidString(value):
		return errors.New("its value is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return errors.New("its value has a control character")
	}
	return nil
}

// checkKey takes the characters that occur in names of options.
func checkKey(key string) error {
	if len(key) > maxOptionBytes {
		return fmt.Errorf("option %q… has a name of %d bytes, more than the %d that the kernel takes", key[:32], len(key), maxOptionBytes)
	}
	for _, r := range key {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("_-.+:", r):
		default:
			return fmt.Errorf("option %q: no option has %q in its name", key, r)
		}
	}
	return nil
}

// String writes the option so that cutEntry reads it again.
func (e entry) String() string {
	switch {
	case !e.valued:
		return e.key
	case strings.Contains(e.value, ",") || strings.HasSuffix(e.value, `\`):
		return e.key + `="` + e.value + `"`
	}
	return e.key + "=" + e.value
}
