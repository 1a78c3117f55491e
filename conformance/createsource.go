package conformance

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// copying is a way to make a volume from something.
type copying struct {
	what  string
	needs []need
	// source makes what is copied, of a volume.
	source func(*check, *volume) *csi.VolumeContentSource
	none   func(id string) *csi.VolumeContentSource
}

func copyings() []copying {
	return []copying{
		{
			what: "a snapshot", needs: []need{creates, snapshots}, none: fromSnapshot,
			source: func(c *check, v *volume) *csi.VolumeContentSource {
				return fromSnapshot(c.snapshot("source", v).GetSnapshotId())
			},
		},
		{
			what: "a volume", needs: []need{creates, clones}, none: fromVolume,
			source: func(_ *check, v *volume) *csi.VolumeContentSource { return fromVolume(v.GetVolumeId()) },
		},
	}
}

// from asks for a volume of a source, with its capabilities and a size.
func (v *volume) from(source *csi.VolumeContentSource, bytes int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource, r.VolumeCapabilities = source, v.request.GetVolumeCapabilities()
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: bytes}
	}
}

func createSourceRows() []row {
	var rows []row
	for _, k := range copyings() {
		rows = append(rows,
			row{rpc: createVolume, name: "makes a volume from " + k.what, clause: "a volume from a source names it in content_source", needs: k.needs, run: func(c *check) {
				origin := c.volume("origin")
				source := k.source(c, origin)
				v := c.volume("v", origin.from(source, origin.GetCapacityBytes()))
				if !proto.Equal(v.GetContentSource(), source) {
					c.Errorf("want content_source %v, got %v", source, v.GetContentSource())
				}
				if v.GetVolumeId() == origin.GetVolumeId() {
					c.Errorf("want another volume than the source, got %s", v.GetVolumeId())
				}
				if v.GetCapacityBytes() != 0 && v.GetCapacityBytes() < origin.GetCapacityBytes() {
					c.Errorf("want at least the %d bytes of the source, got %d", origin.GetCapacityBytes(), v.GetCapacityBytes())
				}
				c.limits(v.Volume)
				same, err := c.create(v.request)
				c.ok(err)
				equal(c, "for the same request the volume", v.GetVolumeId(), same.GetVolume().GetVolumeId())
			}},
			row{rpc: createVolume, name: "makes a volume from " + k.what + " without a size", clause: "a volume must not be smaller than its source", needs: k.needs, run: func(c *check) {
				origin := c.volume("origin")
				source := k.source(c, origin)
				v := c.volume("v", func(r *csi.CreateVolumeRequest) { r.VolumeContentSource, r.CapacityRange = source, nil })
				if v.GetCapacityBytes() != 0 && v.GetCapacityBytes() < origin.GetCapacityBytes() {
					c.Errorf("want at least the %d bytes of the source, got %d", origin.GetCapacityBytes(), v.GetCapacityBytes())
				}
			}},
			row{rpc: createVolume, name: "refuses a volume smaller than its source, " + k.what, clause: "a volume smaller than its source is not allowed: OUT_OF_RANGE", needs: k.needs, run: func(c *check) {
				origin := c.volume("origin", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes *= 2 })
				source := k.source(c, origin)
				r := c.createRequest("v")
				r.VolumeContentSource = source
				r.CapacityRange = &csi.CapacityRange{RequiredBytes: c.volumeBytes(), LimitBytes: c.volumeBytes()}
				if origin.GetCapacityBytes() <= c.volumeBytes() {
					c.Skipf("the driver does not tell the size of volumes")
				}
				_, err := c.create(r)
				c.code(err, codes.OutOfRange)
			}},
			row{rpc: createVolume, name: "makes a volume larger than its source, " + k.what + ", or refuses it", clause: "a larger volume than the source: OUT_OF_RANGE, or both the size and the data", needs: k.needs, run: func(c *check) {
				origin := c.volume("origin")
				r := c.createRequest("v")
				origin.from(k.source(c, origin), 2*origin.GetCapacityBytes())(r)
				resp, err := c.create(r)
				if !c.code(err, codes.OK, codes.OutOfRange) || err != nil {
					return
				}
				if got := resp.GetVolume().GetCapacityBytes(); got != 0 && got < 2*origin.GetCapacityBytes() {
					c.Errorf("want at least %d bytes, got %d", 2*origin.GetCapacityBytes(), got)
				}
			}},
			row{rpc: createVolume, name: "refuses " + k.what + " that does not exist as source", clause: "the source does not exist: NOT_FOUND", needs: k.needs, run: func(c *check) {
				r := c.createRequest("v")
				r.VolumeContentSource = k.none(c.noID())
				_, err := c.create(r)
				c.code(err, codes.NotFound)
			}},
			row{rpc: createVolume, name: "refuses " + k.what + " as source without the capability", clause: "the source is not supported: INVALID_ARGUMENT", needs: []need{creates}, run: func(c *check) {
				c.lacks(k.needs[1:]...)
				r := c.createRequest("v")
				r.VolumeContentSource = k.none(c.noID())
				_, err := c.create(r)
				c.code(err, codes.InvalidArgument)
			}},
			row{rpc: createVolume, name: "makes nothing of a source that failed, " + k.what, clause: "a call that failed for its source may be repeated without one", level: Should, needs: k.needs, run: func(c *check) {
				r := c.createRequest("v")
				r.VolumeContentSource = k.none(c.noID())
				if _, err := c.create(r); status.Code(err) == codes.OK {
					c.fatalf("want an error for a source that does not exist, got OK")
				}
				r.VolumeContentSource = nil
				_, err := c.create(r)
				c.code(err, codes.OK)
			}},
		)
	}
	return rows
}
