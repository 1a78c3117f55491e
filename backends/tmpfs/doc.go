// Package tmpfs keeps volumes in memory: each is a tmpfs of exactly its size,
// mounted from creation to deletion on the node that has it.
//
// A file system volume is the tmpfs at "data" in Volume.Dir, whose root belongs
// to root with mode 0755, as that of a fresh ext4; a volume mount group gets the
// directory's group, write permission and setgid when the volume is staged.
// Stage binds the tmpfs, so all nodes that see the mount must share it: the
// store has to lie on a mount with shared propagation where nodes are in mount
// namespaces of their own, for a mount made there is shared then too. Options of
// the file system cannot be changed by a bind and are refused; those of a mount
// (noexec, ro, …) are taken.
//
// A raw block volume is the tmpfs at "block" with an image in it, which package
// loop hands out.
//
// tmpfs cannot be frozen, so a volume is snapshotted and cloned only while no
// workload can write to it (Hold), by copying its tree. It has no blocks, hence
// no extents. Nothing survives a reboot: what is gone is backends.ErrDataLoss,
// never an empty volume.
//
// Ephemeral volumes get the mount options of their request verbatim, behind
// size= and, for a volume mount group, gid= and mode=2770. Without a group their
// root has the kernel's own mode, 1777.
package tmpfs
