// Package fusefile serves the bytes of one file as another file, by FUSE, and
// makes I/O on it slow, wait or fail as it is told: the ground under a breakable
// volume.
//
// A loop device over the served file sends every read and write to a process,
// the holder, which does it on the image of the volume. The holder is a process
// of its own because the device outlives the emulator, and because it can be
// killed alone, which is how a disk dies. docs/adr/0007-breakable-volumes.md says
// what was weighed.
//
// # The executable runs a second time
//
// The holder is the same executable, started again with an environment variable
// and three descriptors, as the watchdog of package freeze is, for the reasons
// given there: an init function finds them and never returns. The variable
// without the descriptors does nothing.
//
// # What is in the directory
//
// A volume has a directory for its holder. In it are "mount", where the FUSE file
// system with its one file "image" is mounted, "control", the holder's socket,
// and "lock". Whoever holds the lock is the holder; it is taken before the holder
// starts and ends with the process however that ends, so there are never two.
// The kernel shows the mount as of type "fuse.csiemu" with the volume's id in its
// source; nothing else is ever unmounted here.
//
// The kernel is told that attributes of the file stay valid for ever. So it can
// tell the inode of the file, by which the loop device is known, also when the
// holder is dead; Refresh asks for them anew after the file grew.
//
// # The end
//
// A holder that is told to stop lets all I/O that waits go on, unmounts lazily,
// and ends when nothing uses its file any more. A holder that is tied to its
// parent does the same when that ends. One that is killed leaves a dead mount,
// which the next start takes away.
package fusefile
