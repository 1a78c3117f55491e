package step

// All returns the steps there are. Those of a backend are passed with that
// backend only.
func All() []Step {
	const (
		createVolume     = "CreateVolume"
		deleteVolume     = "DeleteVolume"
		attach           = "ControllerPublishVolume"
		detach           = "ControllerUnpublishVolume"
		expandController = "ControllerExpandVolume"
		createSnapshot   = "CreateSnapshot"
		deleteSnapshot   = "DeleteSnapshot"
		stage            = "NodeStageVolume"
		unstage          = "NodeUnstageVolume"
		publish          = "NodePublishVolume"
		unpublish        = "NodeUnpublishVolume"
		expandNode       = "NodeExpandVolume"
		createGroup      = "CreateVolumeGroupSnapshot"
		deleteGroup      = "DeleteVolumeGroupSnapshot"
		modify           = "ControllerModifyVolume"
	)
	rpcs := func(names ...string) []string { return names }
	every := rpcs(createVolume, deleteVolume, attach, detach, expandController, modify, createSnapshot, deleteSnapshot,
		createGroup, deleteGroup, stage, unstage, publish, unpublish, expandNode, Start)
	copying := rpcs(createVolume, createSnapshot, createGroup)
	return []Step{
		{"record.written", "The new content of a record is written beside it; the old record still counts.", every},
		{"record.marked", "A record counts as deleted; its directory and what lies in it are still there.", rpcs(deleteVolume, deleteSnapshot, deleteGroup, unstage, unpublish, Start)},

		{"array.identified", "The array has given itself an id, at its first start.", rpcs(Start)},
		{"array.reopened", "Devices and mounts are what the records of ready volumes say; what was under way is not finished or undone yet.", rpcs(Start)},
		{"array.node.recorded", "A node is known and counts as present.", rpcs(Start)},

		{"array.volume.creating", "A record says that the volume is being made; it has no bytes.", rpcs(createVolume)},
		{"array.volume.cloned", "The bytes of the source are copied; its writers are still held.", rpcs(createVolume)},
		{"array.volume.filled", "The bytes are whole; the record still says that they are being made.", rpcs(createVolume)},
		{"array.volume.ready", "The record says that the volume is ready; nobody was told.", rpcs(createVolume)},
		{"array.volume.growing", "The record has the new size and says that the bytes are growing.", rpcs(expandController)},
		{"array.volume.extended", "The bytes are as long as the record says; it still says that they are growing.", rpcs(expandController, Start)},
		{"array.volume.grown", "The record says that the volume has its new size; nobody was told.", rpcs(expandController, Start)},
		{"array.volume.modified", "The record has new mutable parameters; they are not in force yet.", rpcs(modify)},
		{"array.volume.deleting", "The record says that the volume is being deleted; its bytes are there.", rpcs(deleteVolume)},
		{"array.volume.erased", "The bytes are gone; the record is still there.", rpcs(deleteVolume, Start)},
		{"array.volume.forgotten", "The record is gone; nobody was told.", rpcs(deleteVolume, Start)},

		{"array.attachment.recorded", "A record says that the node is attached; there may be no device yet.", rpcs(attach, stage, publish)},
		{"array.attachment.connected", "The device is there; nobody was told.", rpcs(attach, stage, publish)},
		{"array.attachment.removed", "The record says that the node is not attached any more; its device is still there.", rpcs(detach, unstage, unpublish)},
		{"array.attachment.released", "The device of a volume that no node is attached to is gone; nobody was told.", rpcs(detach, unstage, unpublish)},

		{"array.snapshot.creating", "A record says that the snapshot is being made; it has no bytes.", rpcs(createSnapshot, createGroup)},
		{"array.snapshot.cut", "The bytes are copied; writers are still held.", rpcs(createSnapshot, createGroup)},
		{"array.snapshot.released", "Writers go on; the record still says that the snapshot is being made.", rpcs(createSnapshot, createGroup)},
		{"array.snapshot.ready", "The record says that the snapshot is ready; nobody was told.", rpcs(createSnapshot, createGroup, Start)},
		{"array.snapshot.deleting", "The record says that the snapshot is being deleted; its bytes are there.", rpcs(deleteSnapshot)},
		{"array.snapshot.erased", "The bytes are gone; the record is still there.", rpcs(deleteSnapshot, deleteGroup, Start)},
		{"array.snapshot.forgotten", "The record is gone; nobody was told.", rpcs(deleteSnapshot, deleteGroup, Start)},

		{"array.group.creating", "A record says that the group snapshot is being made; it has no snapshots.", rpcs(createGroup)},
		{"array.group.ready", "The record says that the group snapshot is ready; those of its snapshots still say that they are being made.", rpcs(createGroup)},
		{"array.group.deleting", "The record says that the group snapshot is being deleted; its snapshots are there.", rpcs(deleteGroup)},
		{"array.group.forgotten", "Snapshots and record are gone; nobody was told.", rpcs(deleteGroup, Start)},
		{"array.hold.paused", "The process under a breakable volume makes writes wait; nothing is copied.", rpcs(createSnapshot)},

		{"node.volume.staging", "A record says that the volume is being staged; nothing is mounted.", rpcs(stage, publish)},
		{"node.volume.attached", "The node has attached the volume by itself, for a driver without ControllerPublishVolume.", rpcs(stage, publish)},
		{"node.volume.mounted", "The volume is at its staging path; the record still says that it is being staged.", rpcs(stage, publish)},
		{"node.volume.staged", "The record says that the volume is staged; nobody was told.", rpcs(stage, publish)},
		{"node.volume.expanded", "What lies on the volume has its new size; nobody was told.", rpcs(expandNode)},
		{"node.volume.unmounted", "The volume is not at its staging path any more; the record is still there.", rpcs(unstage, unpublish)},
		{"node.volume.detached", "The node has detached the volume by itself; its record is still there.", rpcs(unstage, unpublish)},
		{"node.volume.forgotten", "The record is gone; nobody was told.", rpcs(unstage, unpublish)},
		{"node.target.recorded", "The record has the target; nothing is there.", rpcs(publish)},
		{"node.target.published", "The volume is at its target; nobody was told.", rpcs(publish)},
		{"node.target.unpublished", "The target is gone; the record still has it.", rpcs(unpublish)},
		{"node.target.forgotten", "The record has the target no more; nobody was told.", rpcs(unpublish)},
		{"node.hold.recorded", "The record says that writers are held; they are not yet.", copying},
		{"node.hold.begun", "Writers are held; nothing is copied.", copying},
		{"node.hold.ended", "Writers go on; the record still says that they are held.", copying},
		{"node.hold.recovered", "Writers whom a killed process held go on; the record still says that they are held.", rpcs(Start)},
		{"node.inline.recorded", "A record says that an inline volume is being made.", rpcs(publish)},
		{"node.inline.made", "The inline volume is there; the record still says that it is being made.", rpcs(publish)},
		{"node.inline.ready", "The record says that the inline volume is there; it is published nowhere.", rpcs(publish)},
		{"node.inline.removed", "The inline volume is gone; its record is still there.", rpcs(unpublish)},

		{"image.begun", "The file of an image is there under another name; it is empty.", copying},
		{"image.filled", "The image is whole and still has another name.", copying},
		{"image.named", "The image is whole and has its name.", copying},
		{"loop.image.extended", "The image has its new length; its device shows the old one.", rpcs(expandController, Start)},
		{"loop.device.bound", "A device is over the image.", rpcs(attach, stage, publish, Start)},
		{"loop.device.detached", "The device is free, or fenced and goes with its last user.", rpcs(attach, detach, unstage, unpublish, Start)},
		{"loop.replay.bound", "A device that can be written to is over the image, so that its journal can be replayed.", rpcs(attach, Start)},
		{"loop.replay.replayed", "The journal is replayed; the device for that is still there.", rpcs(attach, Start)},
		{"loop.filesystem.formatted", "The file system is made; it is not mounted.", rpcs(stage, publish)},
		{"loop.filesystem.checked", "The file system is found to be sound, or repaired; it is not mounted.", rpcs(stage, publish)},
		{"loop.filesystem.grown", "The file system is as large as its device.", rpcs(stage, publish, expandNode)},
		{"loop.stage.noting", "The note of what is about to be mounted is written under another name.", rpcs(stage, publish)},
		{"loop.stage.noted", "The note says what is about to be mounted; nothing is.", rpcs(stage, publish)},
		{"loop.stage.mounted", "The file system is mounted; it may be smaller than its device, and its group may not write.", rpcs(stage, publish)},
		{"loop.stage.unmounted", "The file system is unmounted; the note of it is still there.", rpcs(unstage, unpublish)},
		{"loop.reader.bound", "A read-only device is over the device of a raw block volume; it is not published.", rpcs(publish)},
		{"loop.reader.detached", "The read-only device over the device of a raw block volume is gone.", rpcs(unpublish, unstage)},
		{"loop.holder.started", "The process under a breakable volume serves its bytes; no device is over them.", rpcs(attach, Start)},
		{"loop.holder.noting", "A note on a breakable volume is written under another name; the old one still counts.", rpcs(attach, modify, Start)},
		{"loop.holder.noted", "The note says which device is about to be over a breakable volume; none is.", rpcs(attach, Start)},
		{"loop.holder.stopped", "The process under a breakable volume has ended, or ends with the last user of its bytes.", rpcs(detach, deleteVolume, Start)},
		{"loop.shape.noted", "The note says how slow a breakable volume is to be; it is not yet.", rpcs(modify, Start)},
		{"format.marked", "The device has the mark of a half made file system, and nothing else.", rpcs(stage, publish)},
		{"format.body", "All of the file system but its superblock is written.", rpcs(stage, publish)},
		{"format.superblock", "The superblock is written, and the mark is gone with it unless the file system keeps its superblock elsewhere.", rpcs(stage, publish)},
		{"format.boot", "The mark is gone from the device of a file system that keeps its superblock elsewhere.", rpcs(stage, publish)},
		{"freeze.asked", "The watchdog is asked to freeze the file system; it may be frozen.", copying},
		{"target.made", "The file or directory of the target is there; nothing is mounted.", rpcs(publish)},
		{"target.unmounted", "The target is unmounted; its file or directory is still there.", rpcs(unpublish)},

		{"tmpfs.volume.mounted", "The tmpfs of a volume or snapshot is mounted; it is empty.", copying},
		{"tmpfs.volume.unmounted", "The tmpfs of a volume or snapshot is unmounted; its directory is still there.", rpcs(createVolume, createSnapshot, createGroup, deleteVolume, deleteSnapshot, Start)},
		{"tmpfs.volume.resized", "The tmpfs has its new size.", rpcs(expandController, Start)},
		{"tmpfs.tree.copied", "The tree is copied; it is mounted at another place than its own.", copying},
		{"tmpfs.tree.bound", "The copied tree is at its place; it is still mounted at the other one too.", copying},
		{"tmpfs.stage.bound", "The tmpfs is bound at the staging path; its group may not write yet.", rpcs(stage)},
		{"tmpfs.inline.mounted", "The tmpfs of an inline volume is mounted.", rpcs(publish)},
		{"tmpfs.inline.unmounted", "The tmpfs of an inline volume is unmounted; its directory is still there.", rpcs(unpublish)},

		{"memory.place.noted", "The note of a staging path or target is written; the path is not made.", rpcs(stage, publish)},
		{"memory.place.made", "The staging path or target is made.", rpcs(stage, publish)},
		{"memory.place.removed", "The staging path or target is removed; the note of it is still there.", rpcs(unstage, unpublish)},
	}
}
