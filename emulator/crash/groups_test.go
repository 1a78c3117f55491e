//go:build linux

package crash_test

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// pair makes the volume of the life and another one, with data.
func (l *life) pair() {
	l.t.Helper()
	l.other = l.place("-other", l.capability)
	for _, v := range []*volume{l.v, l.other} {
		v.create()
		v.up()
		v.write()
	}
}

func (l *life) groupRequest() *csi.CreateVolumeGroupSnapshotRequest {
	return &csi.CreateVolumeGroupSnapshotRequest{Name: l.name + "-group", SourceVolumeIds: []string{l.v.id, l.other.id}}
}

func groupScenarios() []scenario {
	call := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.CreateVolumeGroupSnapshot(ctx, l.groupRequest(), o...)
	}
	// live restores both snapshots, after both volumes were written to.
	live := func(l *life, resp proto.Message) {
		group := resp.(*csi.CreateVolumeGroupSnapshotResponse).GetGroupSnapshot()
		l.groups = append(l.groups, group.GetGroupSnapshotId())
		require.Len(l.t, group.GetSnapshots(), 2)
		for _, s := range group.GetSnapshots() {
			source := l.v
			if s.GetSourceVolumeId() == l.other.id {
				source = l.other
			}
			sum := source.sum
			if l.r.backend == "tmpfs" {
				source.up()
			}
			source.requireWritable()
			restored := l.place("-restored-"+source.name, l.capability)
			restored.create(fromSnapshot(s.GetSnapshotId()))
			restored.up()
			restored.requireSum(sum)
		}
	}
	unused := func(l *life) {
		l.pair()
		l.v.down()
		l.other.down()
	}
	grouped := func(l *life) {
		unused(l)
		resp, err := l.r.CreateVolumeGroupSnapshot(l.t.Context(), l.groupRequest())
		require.NoError(l.t, err)
		l.groups = append(l.groups, resp.GetGroupSnapshot().GetGroupSnapshotId())
	}
	return []scenario{
		{name: "snapshot a group in use", on: onLoop, prepare: (*life).pair, call: call, done: live},
		{name: "snapshot a group", on: onTmpfs, prepare: unused, call: call, done: live},
		{
			name: "delete a group snapshot", on: onLoop, prepare: grouped,
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: l.groups[0]}, o...)
			},
		},
	}
}

// breakableScenarios are about volumes with a process below their device.
func breakableScenarios() []scenario {
	breakable := func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"breakable": "true"} }
	create := func(l *life) { l.v.create(breakable) }
	used := func(l *life) {
		create(l)
		l.v.up()
		l.v.write()
	}
	live := func(l *life, _ proto.Message) {
		l.v.up()
		l.v.requireData()
		l.v.requireWritable()
	}
	block := blockCapability()
	return []scenario{
		{
			name: "attach a breakable volume", on: onLoop, prepare: create, done: live,
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.ControllerPublishVolume(ctx, l.v.attachRequest(), o...)
			},
		},
		{
			name: "detach a breakable volume", on: onLoop, done: live,
			prepare: func(l *life) {
				used(l)
				l.v.unpublish()
				_, err := l.r.NodeUnstageVolume(l.t.Context(), l.v.unstageRequest())
				require.NoError(l.t, err)
			},
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.ControllerUnpublishVolume(ctx, l.v.detachRequest(), o...)
			},
		},
		{
			name: "modify a breakable volume", on: onLoop, prepare: used, done: live,
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{
					VolumeId: l.v.id, MutableParameters: map[string]string{"latency": "1ms"},
				}, o...)
			},
		},
		{
			name: "snapshot a breakable raw block volume in use", on: onLoop, capability: block, prepare: used,
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.CreateSnapshot(ctx, l.snapshotRequest(l.v, "-cut"), o...)
			},
			done: func(l *life, resp proto.Message) {
				l.snapshots = append(l.snapshots, snapshot{l.name, resp.(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()})
				live(l, resp)
			},
		},
		{
			name: "delete a breakable volume", on: onLoop,
			prepare: func(l *life) { used(l); l.v.down() },
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: l.v.id}, o...)
			},
		},
	}
}
