package conformance

import (
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const createVolume = "CreateVolume"

func createRows() []row {
	needs := []need{creates}
	good := func(c *check) *csi.CreateVolumeRequest { return c.createRequest("v") }
	rows := refusals(createVolume, needs, good, (*check).createError,
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a request without a name", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.Name = "" }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a request without capabilities", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a capability without an access type", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a capability without an access mode", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses the access mode UNKNOWN", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode.Mode = 0 }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses an access mode that does not exist", clause: "a capability is not supported: INVALID_ARGUMENT", edit: func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode.Mode = 99 }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a file system that does not exist", clause: "the volume must satisfy all capabilities, or the call fails", edit: func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{nowhere(singleWriter)}
		}},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses capabilities of which one is not supported", clause: "the volume must satisfy all capabilities, or the call fails", edit: func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, nowhere(singleWriter))
		}},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a content source without a type", clause: "one of the types of a source must be given: INVALID_ARGUMENT", edit: func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a snapshot as source without an id", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = fromSnapshot("") }},
		spoiled[*csi.CreateVolumeRequest]{name: "refuses a volume as source without an id", clause: missingField, edit: func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = fromVolume("") }},
	)
	return append(rows,
		row{rpc: createVolume, name: "answers a volume with an id", clause: "volume and volume_id are required", needs: needs, run: func(c *check) {
			c.limits(c.volume("v").Volume)
		}},
		row{rpc: createVolume, name: "makes a volume that satisfies its capabilities", clause: "the volume must satisfy all capabilities of the request", needs: needs, run: func(c *check) {
			v := c.volume("v")
			if !v.confirmed(v.request.GetVolumeCapabilities()...) {
				c.Errorf("want the volume's own capability confirmed, got %q", v.lastMessage())
			}
		}},
		row{rpc: createVolume, name: "accepts SINGLE_NODE_WRITER beside the newer modes", clause: "a plugin with SINGLE_NODE_MULTI_WRITER must accept SINGLE_NODE_WRITER", needs: []need{creates, multiWriter}, run: func(c *check) {
			_, err := c.create(c.createRequest("v"))
			c.code(err, codes.OK)
		}},
		row{rpc: createVolume, name: "accepts at least one of the modes of SINGLE_NODE_MULTI_WRITER", clause: "SINGLE_NODE_MULTI_WRITER tells that one or both of its modes are supported", needs: []need{creates, multiWriter}, run: func(c *check) {
			var last error
			for _, mode := range []csi.VolumeCapability_AccessMode_Mode{csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER} {
				r := c.createRequest(mode.String()[len("SINGLE_NODE_"):])
				r.VolumeCapabilities = []*csi.VolumeCapability{c.capability(mode)}
				if _, last = c.create(r); last == nil {
					return
				}
			}
			c.code(last, codes.OK)
		}},
		row{rpc: createVolume, name: "makes one volume of two calls at once", clause: "one name is one volume; a second call at the same time may get ABORTED", needs: needs, run: createTwiceAtOnce},
		row{rpc: createVolume, name: "takes fields of a later version", clause: "messages of newer, compatible versions are parsed", level: Should, needs: needs, run: func(c *check) {
			r := c.createRequest("v")
			unknown := protowire.AppendTag(nil, 4000, protowire.BytesType)
			r.ProtoReflect().SetUnknown(protowire.AppendString(unknown, "later"))
			_, err := c.create(r)
			c.code(err, codes.OK)
		}},
		row{rpc: createVolume, name: "takes secrets that it has no use for", clause: "the same secrets may be passed to all RPCs", level: Should, needs: needs, run: func(c *check) {
			r := c.createRequest("v")
			r.Secrets = map[string]string{"conformance.other-RPC_key": "value"}
			for key, value := range c.Secrets[createVolume] {
				r.Secrets[key] = value
			}
			for key, value := range c.Secrets[""] {
				r.Secrets[key] = value
			}
			_, err := c.create(r)
			c.code(err, codes.OK)
		}},
		row{rpc: createVolume, name: "refuses wrong secrets", clause: "the secrets are not valid: UNAUTHENTICATED; their identity may not do this: PERMISSION_DENIED", needs: needs, run: func(c *check) {
			r := c.createRequest("v")
			r.Secrets = map[string]string{}
			for key := range c.Secrets[createVolume] {
				r.Secrets[key] = "conformance-wrong"
			}
			if len(r.Secrets) == 0 {
				c.Skipf("no secrets that this driver needs for CreateVolume are known: set Secrets")
			}
			c.code(c.createError(r), codes.Unauthenticated, codes.PermissionDenied)
		}},
		row{rpc: createVolume, name: "tells where a volume is accessible from only with the capability", clause: "accessible_topology needs VOLUME_ACCESSIBILITY_CONSTRAINTS", needs: needs, run: func(c *check) {
			c.lacks(hasTopology)
			if t := c.volume("v").GetAccessibleTopology(); len(t) > 0 {
				c.Errorf("want no accessible_topology, got %v", t)
			}
		}},
	)
}

// nowhere is a capability with a file system that no system has.
func nowhere(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return (&Target{FSType: unknownFSType}).mountCapability(mode)
}

func fromSnapshot(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func fromVolume(id string) *csi.VolumeContentSource {
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

func createTwiceAtOnce(c *check) {
	r := c.createRequest("v")
	responses, errs := [2]*csi.CreateVolumeResponse{}, [2]error{}
	var both sync.WaitGroup
	for i := range errs {
		both.Go(func() { responses[i], errs[i] = c.controller.CreateVolume(c.ctx, proto.CloneOf(r)) })
	}
	both.Wait()
	ids := map[string]bool{}
	for i, err := range errs {
		if id := responses[i].GetVolume().GetVolumeId(); err == nil {
			ids[id] = true
			c.deleteLater(id)
		}
		c.code(err, codes.OK, codes.Aborted)
	}
	if status.Code(errs[0]) != codes.OK && status.Code(errs[1]) != codes.OK {
		_, err := c.create(r)
		c.code(err, codes.OK, codes.Aborted)
	}
	if len(ids) > 1 {
		c.Errorf("want one volume for one name, got %v", ids)
	}
}
