package emulator_test

import (
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/csiemu/csiemu/emulator"
)

// zones serves node-1 in zone a and node-2 in zone b.
func zones(t *testing.T) *driver {
	t.Helper()
	return inMemory(t, func(c *emulator.Config) {
		c.Nodes = []emulator.Node{
			{Name: "node-1", Topology: map[string]string{"example.com/zone": "a", "example.com/rack": "1"}},
			{Name: "node-2", Topology: map[string]string{"example.com/zone": "b"}, Endpoint: "unix://" + filepath.Join(shortDir(t), "csi.sock")},
		}
	})
}

func zone(names ...string) []*csi.Topology {
	var out []*csi.Topology
	for _, n := range names {
		out = append(out, &csi.Topology{Segments: map[string]string{"example.com/zone": n}})
	}
	return out
}

func TestVolumesAreMadeWhereTheyAreWanted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requisite, preferred []*csi.Topology
		want                 string
		code                 codes.Code
	}{
		"one requisite zone":             {zone("b"), nil, "b", codes.OK},
		"the preferred of two":           {zone("a", "b"), zone("b", "a"), "b", codes.OK},
		"preferred alone":                {nil, zone("b"), "b", codes.OK},
		"preferred cannot be had":        {zone("c", "a"), zone("c"), "a", codes.OK},
		"no requisite zone can be had":   {zone("c", "d"), nil, "", codes.ResourceExhausted},
		"nothing is wanted":              {nil, nil, "a", codes.OK},
		"a rack narrows the zone down":   {[]*csi.Topology{{Segments: map[string]string{"example.com/zone": "a", "example.com/rack": "1"}}}, nil, "a", codes.OK},
		"a rack that is not in the zone": {[]*csi.Topology{{Segments: map[string]string{"example.com/zone": "b", "example.com/rack": "1"}}}, nil, "", codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := zones(t)
			r := &csi.CreateVolumeRequest{
				Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
			}
			if c.requisite != nil || c.preferred != nil {
				r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: c.requisite, Preferred: c.preferred}
			}
			resp, err := d.CreateVolume(t.Context(), r)
			wantCode(t, c.code, err)
			if c.code != codes.OK {
				return
			}
			where := resp.GetVolume().GetAccessibleTopology()
			require.Len(t, where, 1)
			require.Equal(t, c.want, where[0].GetSegments()["example.com/zone"])
			again, err := d.CreateVolume(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, resp.GetVolume().GetVolumeId(), again.GetVolume().GetVolumeId())
		})
	}
}

func TestVolumeIsNotReachedFromElsewhere(t *testing.T) {
	t.Parallel()
	d := zones(t)
	in := func(names ...string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: zone(names...)}
		}
	}
	v := d.create("v", mountCapability(""), mib, in("a"))
	_, err := d.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: "node-2", VolumeCapability: v.capability})
	wantCode(t, codes.FailedPrecondition, err)
	v.up()
	v.down()

	t.Log("the same name somewhere else is another volume, a copy stays with its source")
	r := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: []*csi.VolumeCapability{v.capability}, CapacityRange: &csi.CapacityRange{RequiredBytes: mib}}
	in("b")(r)
	_, err = d.CreateVolume(t.Context(), r)
	wantCode(t, codes.AlreadyExists, err)
	r.Name = "clone"
	fromVolume(v.id)(r)
	_, err = d.CreateVolume(t.Context(), r)
	wantCode(t, codes.ResourceExhausted, err)
	in("a", "b")(r)
	clone, err := d.CreateVolume(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "a", clone.GetVolume().GetAccessibleTopology()[0].GetSegments()["example.com/zone"])

	capacity := func(zone *csi.Topology) int64 {
		resp, err := d.GetCapacity(t.Context(), &csi.GetCapacityRequest{AccessibleTopology: zone})
		require.NoError(t, err)
		return resp.GetAvailableCapacity()
	}
	require.Positive(t, capacity(zone("b")[0]))
	require.Zero(t, capacity(zone("c")[0]))
}

func TestNamesThatADriverMustNotEmit(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*emulator.Config){
		"a driver name with a slash": func(c *emulator.Config) { c.Profile.DriverName = "a/b" },
		"a driver name of 64 bytes": func(c *emulator.Config) {
			c.Profile.DriverName = "0123456789012345678901234567890123456789012345678901234567890123"
		},
		"a node without a name": func(c *emulator.Config) { c.Nodes = []emulator.Node{{}} },
		"a node twice": func(c *emulator.Config) {
			c.Nodes = []emulator.Node{{Name: "n"}, {Name: "n", Endpoint: "unix:///x.sock"}}
		},
		"a topology key with a space":  func(c *emulator.Config) { c.Nodes[0].Topology = map[string]string{"a b": "c"} },
		"a topology value with a dash": func(c *emulator.Config) { c.Nodes[0].Topology = map[string]string{"a": "-"} },
		"an empty pool":                func(c *emulator.Config) { c.Pools = map[string]int64{"default": 0} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := emulator.Config{
				Backend: memoryCase().open(t, ""), Profile: emulator.DefaultProfile("memory"), Nodes: []emulator.Node{{Name: "node-1"}},
			}
			edit(&c)
			_, err := emulator.New(t.Context(), c)
			require.Error(t, err)
		})
	}
}
