// Package loopdev makes, finds and releases loop devices by ioctl, and knows
// each of them by the name that it gave it.
//
// The name is kept by the kernel (lo_file_name), so a device is known again by
// any process, in any container, until it is released. Every call that changes a
// device first asks the kernel, over a descriptor that it holds open meanwhile,
// whether the device still carries the name: a loop device cannot be released
// and bound anew while it is open, so what is not ours is never touched.
//
// See loop(4) and drivers/block/loop.c of Linux.
package loopdev
