//go:build linux

package filesystem

import (
	"crypto/rand"
	"fmt"
)

// uuid is a UUID in the byte order of its text (RFC 9562).
type uuid [16]byte

// newUUID makes a random one. crypto/rand does not fail: it ends the process
// where the kernel gives no random bytes.
func newUUID() uuid {
	var id uuid
	rand.Read(id[:])
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // variant of the RFC
	return id
}

func (id uuid) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
