// Package treecopy copies a directory tree with everything that a file system
// keeps of it: this is how a tmpfs volume, which has no blocks to copy, is
// snapshotted and cloned.
//
// A workload wrote the tree, so nothing in it is trusted. All work is relative to
// open directories: no symbolic link is ever followed, no special file opened,
// no path gets too long, and a tree of any depth needs a bounded number of
// descriptors. What is mounted over parts of the tree is not seen; what lies
// below such mounts is copied, because it belongs to the volume.
package treecopy
