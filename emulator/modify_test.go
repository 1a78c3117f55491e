package emulator_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func (d *driver) modify(id string, parameters map[string]string) error {
	_, err := d.ControllerModifyVolume(d.t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: parameters})
	return err
}

// hasMutable asks the driver whether a volume has mutable parameters.
func (d *driver) hasMutable(id string, parameters map[string]string) bool {
	d.t.Helper()
	resp, err := d.ValidateVolumeCapabilities(d.t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, MutableParameters: parameters,
	})
	require.NoError(d.t, err)
	return resp.GetConfirmed() != nil
}

func TestModifyVolumeChangesHealth(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	sick := map[string]string{"health": "DEGRADED:SlowDisk:it is old;DATA_LOSS:BadBlocks"}
	for range 2 {
		require.NoError(t, d.modify(v.id, sick))
		require.Len(t, d.health(v.id), 2)
	}
	require.Equal(t, "it is old", d.health(v.id)[0].GetMessage())
	require.True(t, d.hasMutable(v.id, sick))
	require.NoError(t, d.modify(v.id, map[string]string{"health": ""}))
	require.Empty(t, d.health(v.id))
	require.False(t, d.hasMutable(v.id, sick))
}

func TestModifyVolumeThatCannotBe(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	v := d.create("v", mountCapability(""), mib)
	require.NoError(t, d.modify(v.id, map[string]string{"health": "DEGRADED:Old"}))
	for name, row := range map[string]struct {
		code       codes.Code
		id         string
		parameters map[string]string
	}{
		"unknown key beside a good one": {codes.InvalidArgument, v.id, map[string]string{"health": "", "colour": "blue"}},
		"bad health":                    {codes.InvalidArgument, v.id, map[string]string{"health": "SICK:Disk"}},
		"iops of a plain volume":        {codes.InvalidArgument, v.id, map[string]string{"health": "", "iops": "100"}},
		"no number":                     {codes.InvalidArgument, v.id, map[string]string{"iops": "many"}},
		"a negative number":             {codes.InvalidArgument, v.id, map[string]string{"iops": "-1"}},
		"no size":                       {codes.InvalidArgument, v.id, map[string]string{"throughput": "fast"}},
		"no duration":                   {codes.InvalidArgument, v.id, map[string]string{"latency": "5"}},
		"an endless latency":            {codes.InvalidArgument, v.id, map[string]string{"latency": "2h"}},
		"nothing":                       {codes.InvalidArgument, v.id, nil},
		"no volume":                     {codes.NotFound, "vol-none", map[string]string{"health": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.as(t)
			wantCode(t, row.code, d.modify(row.id, row.parameters))
			require.Len(t, d.health(v.id), 1, "nothing was applied")
		})
	}
	_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "w", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, MutableParameters: map[string]string{"iops": "1"},
	})
	wantCode(t, codes.InvalidArgument, err)
}

func TestCreateVolumeWithMutableParametersIsRepeatable(t *testing.T) {
	t.Parallel()
	d := inMemory(t)
	create := &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}, MutableParameters: map[string]string{"health": "DEGRADED:Born"},
	}
	first, err := d.CreateVolume(t.Context(), create)
	require.NoError(t, err)
	id := first.GetVolume().GetVolumeId()
	require.Len(t, d.health(id), 1)
	require.NoError(t, d.modify(id, map[string]string{"health": ""}))
	again, err := d.CreateVolume(t.Context(), create)
	require.NoError(t, err, "what was modified since is no other wish")
	require.Equal(t, id, again.GetVolume().GetVolumeId())
}
