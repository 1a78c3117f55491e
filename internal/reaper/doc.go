// Package reaper takes away what a process leaves when it is killed: a second
// process waits for its death and then frees the mounts, loop devices and files
// that hang on one directory.
//
// It is for fixtures, whose volumes are to outlive nobody. A mount stays when its
// process is killed, so the kernel's own means (autoclear, O_TMPFILE) are not
// enough, and a mount namespace of its own is not to be had for a process that
// has threads already.
//
// The second process is the same executable, started again with an environment
// variable and one end of a socket pair, as in package freeze, which says why.
package reaper
