// Package mount mounts file systems and binds directories, files and device
// nodes by system call, in a way that no symbolic link or rename can redirect.
//
// # Targets
//
// A target is opened once, element by element without symbolic links (openat2
// with RESOLVE_NO_SYMLINKS), and the mount is made detached and moved onto the
// open target. What somebody swaps in between is not followed. Only an entry of
// the root directory, such as /var or /tmp, may be a symbolic link, as it is
// the system's own; the last element never may.
//
// # What is seen is finished
//
// A mount becomes visible in one step, with all its attributes: there is no
// moment at which a read-only mount can be written. A process that is killed
// before that step leaves nothing behind. Mounts are never recursive.
//
// # Errors
//
// Errors carry what the kernel itself said ("ext4: Unknown parameter 'foo'"),
// read from the file system context, and the errno. They wrap the kinds of
// package backends where the cause is clear, and *kernel.NotSupportedError where
// the kernel lacks a call.
//
// # Forks
//
// A process that starts others hands them copies of all its descriptors for a
// moment, whatever O_CLOEXEC says. This package does not let that keep a mount or
// a device busy: its own descriptors are not copied, or the copies are waited
// for. Where another package closed a file inside a mount a moment ago, Unmount
// waits for a short time until the copies of that are gone as well.
//
// All functions are safe for concurrent use. For one target, callers make one
// call at a time; only Stat and StatFS may run beside it.
package mount
