package conformance

import (
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// publishAgainRows are the tables for a second NodePublishVolume of a volume on
// one node, mode by mode.
func publishAgainRows() []row {
	const rpc = "NodePublishVolume"
	type mode = csi.VolumeCapability_AccessMode_Mode
	const strict, shared = codes.FailedPrecondition, codes.OK
	var rows []row
	for _, m := range []struct {
		mode mode
		// elsewhere is the answer for another target.
		elsewhere codes.Code
	}{
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, strict},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, strict},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, strict},
		{csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, shared},
		{csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, shared},
		{csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, shared},
		{csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, shared},
	} {
		for _, cell := range []struct {
			sameTarget, sameArguments bool
			want                      codes.Code
		}{
			{true, true, codes.OK},
			{true, false, codes.AlreadyExists},
			{false, true, m.elsewhere},
			{false, false, m.elsewhere},
		} {
			level := Should
			if cell.sameTarget {
				level = Must // by the paragraphs on idempotency and the table of errors
			}
			rows = append(rows, row{
				rpc: rpc, level: level, needs: []need{creates},
				name:   fmt.Sprintf("published again, %s, %s target, %s readonly", m.mode, which(cell.sameTarget), which(cell.sameArguments)),
				clause: fmt.Sprintf("the table for a second publication: %s", codeName(cell.want)),
				run: func(c *check) {
					c.modeExists(m.mode)
					v, reads := c.inMode(m.mode)
					v.ready()
					first := v.publishRequest()
					first.Readonly = reads
					c.ok(c.nodePublish(first))
					target := v.target
					if !cell.sameTarget {
						target = c.path("target", false)
					}
					second := v.at(target)
					second.Readonly = first.GetReadonly() == cell.sameArguments
					c.code(c.nodePublish(second), cell.want)
				},
			})
		}
	}
	return append(rows, row{rpc: rpc, name: "refuses a second target with another capability", clause: "a second publication with another volume_capability: FAILED_PRECONDITION", level: Should, needs: []need{creates}, run: func(c *check) {
		one, two := c.capability(singleWriter), c.capability(singleReader)
		c.with("probe", two)
		v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{one, two} }).up()
		second := v.at(c.path("target", false))
		second.VolumeCapability = two
		c.code(c.nodePublish(second), codes.FailedPrecondition)
	}})
}

func which(same bool) string {
	if same {
		return "same"
	}
	return "other"
}

// inMode makes a volume for an access mode. Those of readers only have been
// published for writing once, without which a driver may have nothing to read.
func (c *check) inMode(mode csi.VolumeCapability_AccessMode_Mode) (v *volume, reads bool) {
	c.Helper()
	if !strings.HasSuffix(mode.String(), "_READER_ONLY") {
		return c.with("v", c.capability(mode)), false
	}
	c.with("probe", c.capability(mode))
	v = c.volume("v", func(r *csi.CreateVolumeRequest) {
		r.VolumeCapabilities = []*csi.VolumeCapability{c.capability(singleWriter), c.capability(mode)}
	}).up()
	v.down()
	v.capability = c.capability(mode)
	return v, true
}

// modeExists skips the row if the mode needs a capability that the driver does
// not have.
func (c *check) modeExists(mode csi.VolumeCapability_AccessMode_Mode) {
	c.Helper()
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		c.need(nodeMultiWriter)
	}
}

// sharedMode is a mode in which a node may publish a volume at several targets.
func (c *check) sharedMode() csi.VolumeCapability_AccessMode_Mode {
	if c.has[multiWriter] && c.has[nodeMultiWriter] {
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return multiNode
}
