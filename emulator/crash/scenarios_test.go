//go:build linux

package crash_test

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// The backends of scenarios. What concerns the array alone is the same with the
// memory backend, and needs no row there.
var (
	everywhere = []string{"loop", "tmpfs", "memory"}
	realOnes   = []string{"loop", "tmpfs"}
	onLoop     = []string{"loop"}
	onTmpfs    = []string{"tmpfs"}
)

// scenarios are the rows of TestEveryKillPoint. A new RPC gets a new row: how to
// come to it, the call, and what it was for.
func scenarios() []scenario {
	all := [][]scenario{createScenarios(), attachScenarios(), stageScenarios(), publishScenarios(), growthScenarios(), snapshotScenarios(), groupScenarios(), breakableScenarios()}
	var rows []scenario
	for _, s := range all {
		rows = append(rows, s...)
	}
	return rows
}

func createScenarios() []scenario {
	create := func(edit func(*life) []func(*csi.CreateVolumeRequest)) func(context.Context, *life, ...grpc.CallOption) (proto.Message, error) {
		return func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
			var edits []func(*csi.CreateVolumeRequest)
			if edit != nil {
				edits = edit(l)
			}
			return l.r.CreateVolume(ctx, l.v.createRequest(edits...), o...)
		}
	}
	// live gives the volume the rest of its life.
	live := func(l *life, resp proto.Message) {
		l.v.id = resp.(*csi.CreateVolumeResponse).GetVolume().GetVolumeId()
		l.v.up()
		l.v.requireData()
		l.v.requireWritable()
	}
	// source makes another volume with data.
	source := func(l *life) {
		l.other = l.place("-source", l.capability)
		l.other.create()
		l.other.up()
		l.other.write()
		l.v.sum = l.other.sum
	}
	restore := scenario{
		name: "restore a snapshot to a larger volume", on: realOnes,
		prepare: func(l *life) {
			source(l)
			l.other.down()
			l.snapshot(l.other, "-cut")
		},
		call: create(func(l *life) []func(*csi.CreateVolumeRequest) {
			return []func(*csi.CreateVolumeRequest){fromSnapshot(l.snapshots[0].id), ofSize(32 * mib)}
		}),
		done: live,
	}
	clone := scenario{
		name: "clone a volume", on: onTmpfs,
		prepare: func(l *life) { source(l); l.other.down() },
		call: create(func(l *life) []func(*csi.CreateVolumeRequest) {
			return []func(*csi.CreateVolumeRequest){fromVolume(l.other.id)}
		}),
		done: live,
	}
	inUse := clone
	inUse.name, inUse.on, inUse.prepare = "clone a volume in use", onLoop, source
	inUse.done = func(l *life, resp proto.Message) {
		l.other.requireWritable()
		live(l, resp)
	}
	block := scenario{name: "create a raw block volume", on: onTmpfs, capability: blockCapability(), call: create(nil), done: live}
	gone := scenario{
		name: "delete a volume", on: realOnes, short: true,
		prepare: func(l *life) { l.v.create() },
		call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
			return l.r.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: l.v.id}, o...)
		},
	}
	goneBlock := gone
	goneBlock.name, goneBlock.on, goneBlock.short, goneBlock.capability = "delete a raw block volume", onTmpfs, false, blockCapability()
	return []scenario{
		{name: "create a volume", on: everywhere, short: true, call: create(nil), done: live}, restore, clone, inUse, block, gone, goneBlock,
	}
}

func attachScenarios() []scenario {
	call := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.ControllerPublishVolume(ctx, l.v.attachRequest(), o...)
	}
	live := func(l *life, resp proto.Message) {
		l.v.publishContext = resp.(*csi.ControllerPublishVolumeResponse).GetPublishContext()
		l.v.stage()
		l.v.publish()
		l.v.requireData()
		l.v.requireWritable()
	}
	return []scenario{
		{name: "attach a volume", on: onLoop, prepare: func(l *life) { l.v.create() }, call: call, done: live},
		{
			name: "attach a volume with a journal to replay for reading", on: onLoop, call: call, done: live,
			prepare: func(l *life) { l.createDirty(); l.v.readOnly = true },
		},
		{
			name: "detach a volume", on: onLoop,
			prepare: func(l *life) { l.v.create(); l.v.attach() },
			call: func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
				return l.r.ControllerUnpublishVolume(ctx, l.v.detachRequest(), o...)
			},
		},
	}
}

// createDirty makes the volume with the bytes of one in use.
func (l *life) createDirty() {
	l.t.Helper()
	l.other = l.place("-running", l.capability)
	l.other.create()
	l.other.up()
	l.other.write()
	l.v.create()
	l.copyImage(l.other, l.v)
	l.other.down()
}

func stageScenarios() []scenario {
	call := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.NodeStageVolume(ctx, l.v.stageRequest(), o...)
	}
	live := func(l *life, _ proto.Message) {
		l.v.publish()
		l.v.requireData()
		l.v.requireWritable()
	}
	attached := func(l *life) { l.v.create(); l.v.attach() }
	unstage := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.NodeUnstageVolume(ctx, l.v.unstageRequest(), o...)
	}
	staged := func(l *life) { attached(l); l.v.stage() }
	return []scenario{
		{name: "stage a blank volume", on: everywhere, short: true, prepare: attached, call: call, done: live},
		{name: "stage a blank xfs volume", on: onLoop, capability: mountCapability("xfs"), prepare: attached, call: call, done: live},
		{name: "stage a raw block volume", on: realOnes, capability: blockCapability(), prepare: attached, call: call, done: live},
		{
			name: "stage a volume that is larger than its file system", on: onLoop, call: call, done: live,
			prepare: func(l *life) {
				l.other = l.place("-source", l.capability)
				l.other.create()
				l.other.up()
				l.other.write()
				l.other.down()
				l.v.create(fromVolume(l.other.id), ofSize(32*mib))
				l.v.attach()
				l.v.sum = l.other.sum
			},
		},
		{
			name: "stage a volume with a journal to replay", on: onLoop, call: call, done: live,
			prepare: func(l *life) { l.createDirty(); l.v.attach() },
		},
		{name: "unstage a volume", on: everywhere, prepare: staged, call: unstage},
		{name: "unstage a raw block volume", on: realOnes, capability: blockCapability(), prepare: staged, call: unstage},
	}
}

func publishScenarios() []scenario {
	call := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.NodePublishVolume(ctx, l.v.publishRequest(), o...)
	}
	live := func(l *life, _ proto.Message) {
		l.v.requireData()
		l.v.requireWritable()
	}
	unpublish := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.NodeUnpublishVolume(ctx, l.v.unpublishRequest(), o...)
	}
	staged := func(l *life) { l.v.create(); l.v.attach(); l.v.stage() }
	reader := func(l *life) { l.v.create(); l.v.attach(); l.v.stage(); l.v.readOnly = true }
	published := func(l *life) { staged(l); l.v.publish(); l.v.write() }
	inline := func(l *life) {
		l.v.inline, l.v.id = true, "csi-"+l.name
		require.NoError(l.t, os.MkdirAll(filepath.Dir(l.v.target), 0o700))
	}
	alone := []string{"PUBLISH_UNPUBLISH_VOLUME", "STAGE_UNSTAGE_VOLUME"}
	block := blockCapability()
	return []scenario{
		{name: "publish a volume", on: everywhere, short: true, prepare: staged, call: call, done: live},
		{name: "publish a raw block volume", on: onLoop, capability: block, prepare: staged, call: call, done: live},
		{name: "publish a raw block volume for reading", on: onLoop, capability: block, prepare: reader, call: call, done: live},
		{name: "publish an inline volume", on: []string{"tmpfs", "memory"}, prepare: inline, call: call, done: live},
		{
			name: "publish a volume that nobody attaches or stages", on: onLoop, disabled: alone,
			prepare: func(l *life) { l.v.create() }, call: call, done: live,
		},
		{name: "unpublish a volume", on: everywhere, short: true, prepare: published, call: unpublish},
		{
			name: "unpublish a raw block volume for reading", on: onLoop, capability: block, call: unpublish,
			prepare: func(l *life) { reader(l); l.v.publish() },
		},
		{name: "unpublish an inline volume", on: []string{"tmpfs", "memory"}, prepare: func(l *life) { inline(l); l.v.publish() }, call: unpublish},
		{
			name: "unpublish a volume that nobody attached or staged", on: onLoop, disabled: alone,
			prepare: func(l *life) { l.v.create(); l.v.publish() }, call: unpublish,
		},
	}
}

func growthScenarios() []scenario {
	const larger = 384 * mib
	range_ := &csi.CapacityRange{RequiredBytes: larger}
	expand := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: l.v.id, CapacityRange: range_, VolumeCapability: l.capability,
		}, o...)
	}
	expandNode := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId: l.v.id, VolumePath: l.v.target, StagingTargetPath: l.v.staging, CapacityRange: range_,
		}, o...)
	}
	used := func(l *life) { l.v.create(); l.v.up(); l.v.write() }
	live := func(l *life, _ proto.Message) {
		resp, err := l.r.NodeExpandVolume(l.t.Context(), &csi.NodeExpandVolumeRequest{
			VolumeId: l.v.id, VolumePath: l.v.target, StagingTargetPath: l.v.staging, CapacityRange: range_,
		})
		require.NoError(l.t, err)
		require.EqualValues(l.t, larger, resp.GetCapacityBytes())
		l.v.requireData()
		l.v.requireWritable()
	}
	// xfs grows while it is mounted without privileges that machines may lack.
	xfs := mountCapability("xfs")
	grown := func(l *life) {
		used(l)
		_, err := expand(l.t.Context(), l)
		require.NoError(l.t, err)
	}
	return []scenario{
		{name: "expand a volume in use", on: onLoop, capability: xfs, prepare: used, call: expand, done: live},
		{name: "expand a volume in use", on: onTmpfs, prepare: used, call: expand, done: live},
		{name: "expand a raw block volume in use", on: realOnes, capability: blockCapability(), prepare: used, call: expand, done: live},
		{name: "expand a file system in use", on: onLoop, capability: xfs, prepare: grown, call: expandNode, done: live},
		{name: "expand a file system in use", on: onTmpfs, prepare: grown, call: expandNode, done: live},
	}
}

func snapshotScenarios() []scenario {
	call := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.CreateSnapshot(ctx, l.snapshotRequest(l.v, "-cut"), o...)
	}
	used := func(l *life) { l.v.create(); l.v.up(); l.v.write() }
	unused := func(l *life) { used(l); l.v.down() }
	// live restores the snapshot, after the volume was written to.
	live := func(l *life, resp proto.Message) {
		id := resp.(*csi.CreateSnapshotResponse).GetSnapshot().GetSnapshotId()
		l.snapshots = append(l.snapshots, snapshot{l.name, id})
		sum := l.v.sum
		l.v.up()
		l.v.requireData()
		l.v.requireWritable()
		restored := l.place("-restored", l.capability)
		restored.create(fromSnapshot(id))
		restored.up()
		restored.requireSum(sum)
	}
	remove := func(ctx context.Context, l *life, o ...grpc.CallOption) (proto.Message, error) {
		return l.r.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: l.snapshots[0].id}, o...)
	}
	return []scenario{
		{name: "snapshot a volume", on: realOnes, prepare: unused, call: call, done: live},
		{name: "snapshot a raw block volume", on: onTmpfs, capability: blockCapability(), prepare: unused, call: call, done: live},
		{name: "snapshot a volume in use", on: onLoop, short: true, prepare: used, call: call, done: live},
		{name: "delete a snapshot", on: realOnes, prepare: func(l *life) { l.v.create(); l.snapshot(l.v, "-cut") }, call: remove},
	}
}
