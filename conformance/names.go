package conformance

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

// bannedRunes are the ends of the ranges that names must not have a character
// of.
func bannedRunes() []rune {
	return []rune{0x00, 0x08, 0x0b, 0x0c, 0x0e, 0x1f, 0x7f, 0x80, 0x9f}
}

// allowedNames are names that orchestrators may give, by what is special about
// them. Each ends with the name of the row, so that nobody else has it.
func allowedNames(unique string) map[string]string {
	return map[string]string{
		"with other scripts and symbols":  "датa-数据-🗄-" + unique,
		"with tab, newline and space":     "a\tb\nc\rd " + unique,
		"with slashes and dots":           "../a/./b/" + unique,
		"with percent, quote and newline": `%s'"\n$(x)` + unique,
		"of 128 bytes":                    unique + strings.Repeat("x", stringLimit-len(unique)),
	}
}

// names are the rows about the names of one kind of thing: make gives it a name,
// and returns its id.
func names(rpc string, needs []need, make func(c *check, name string) (string, error)) []row {
	var rows []row
	for _, r := range bannedRunes() {
		rows = append(rows, row{rpc: rpc, needs: needs, name: fmt.Sprintf("refuses a name with %U", r), clause: "names must not have control characters: INVALID_ARGUMENT", run: func(c *check) {
			_, err := make(c, c.name("a"+string(r)+"b"))
			c.code(err, codes.InvalidArgument)
		}})
	}
	rows = append(rows, row{rpc: rpc, needs: needs, name: "refuses a name of 129 bytes", clause: "a name has at most 128 bytes: INVALID_ARGUMENT", run: func(c *check) {
		name := c.name("")
		_, err := make(c, name+strings.Repeat("x", stringLimit+1-len(name)))
		c.code(err, codes.InvalidArgument)
	}})
	for _, what := range []string{"with other scripts and symbols", "with tab, newline and space", "with slashes and dots", "with percent, quote and newline", "of 128 bytes"} {
		rows = append(rows, row{rpc: rpc, needs: needs, name: "takes a name " + what, clause: "a name is any Unicode string of at most 128 bytes without control characters", run: func(c *check) {
			name := allowedNames(c.name("n"))[what]
			id, err := make(c, name)
			if !c.code(err, codes.OK) {
				return
			}
			if len(id) > stringLimit {
				c.Errorf("want an id of at most %d bytes, got %d", stringLimit, len(id))
			}
			same, err := make(c, name)
			c.ok(err)
			equal(c, "for the same name the id", id, same)
		}})
	}
	return append(rows, row{rpc: rpc, needs: needs, name: "tells names apart that differ in their case or last byte", clause: "another name is another thing", run: func(c *check) {
		ids := map[string]string{}
		for _, name := range []string{c.name("a"), c.name("A"), c.name("a "), c.name("a/")} {
			id, err := make(c, name)
			c.ok(err)
			if other, twice := ids[id]; twice {
				c.Errorf("want another id for %q than for %q, got %s for both", name, other, id)
			}
			ids[id] = name
		}
	}})
}

func createNameRows() []row {
	return names(createVolume, []need{creates}, func(c *check, name string) (string, error) {
		r := c.createRequest("")
		r.Name = name
		resp, err := c.create(r)
		return resp.GetVolume().GetVolumeId(), err
	})
}
