// Package loop keeps volumes as image files and hands them to nodes as loop
// devices, a storage network in miniature for all nodes of one kernel.
//
// # Array
//
// A volume is the sparse file "image" in Volume.Dir (with provisioning=thick
// its space is taken at creation), a snapshot the file "image" in Snapshot.Dir.
// What is being written has another name and gets this one when it is whole, so
// that what a killed process left is never taken for a volume.
//
// Attach binds one loop device to the image, whatever the number of nodes: two
// writable devices over one file would corrupt it. The kernel keeps the
// attachment's id as the device's name. A device is known again by that name
// together with the device and inode of its backing file, never by a path
// alone, which may name another file by now (hetznercloud/csi-driver#1455).
//
// A breakable volume has a holder while it is attached, a process that serves the
// bytes of the image as a FUSE file (internal/fusefile); the device is bound to
// that. What belongs to the holder is in the directory "breakable" in Volume.Dir.
// While the writes of such a volume are held (Pause), a snapshot or clone of it is
// one point in time, whatever writes.
//
// A snapshot or clone of a volume that is attached copies the image after the
// device was flushed. It is one point in time if the file system is frozen
// (Node.Hold), if nothing writes, or if the store shares blocks (xfs, btrfs); a
// raw block volume that is written to meanwhile on another store is not.
//
// # Node
//
// Stage finds the device by the hint in the publish context, else by one scan,
// formats it if it is blank, checks, mounts and grows. Snapshots and clones of
// xfs carry the UUID of their source, so xfs is always mounted with nouuid.
//
// VOLUME_MOUNT_GROUP: the kernel has no gid= option for ext4, xfs and btrfs. The
// root directory gets the group, its write permission and setgid once, when a
// volume is staged; ext4 and xfs are mounted with grpid as well, so that new
// files get the group of their directory below directories without setgid too.
// Files that exist keep their groups.
//
// A raw block volume that is published read-only while its attachment is
// writable gets a second, read-only loop device over the first one, as a bind
// mount that is read-only does not keep anyone from writing to a device. The
// kernel enforces it. The second device has a page cache of its own, so a reader
// may see older bytes than a writer that bypasses or has not flushed its cache.
//
// An attachment that is read-only gets a device that refuses writes. What a
// crash left in a journal is replayed before, because the kernel cannot mount a
// dirty file system from such a device.
package loop
