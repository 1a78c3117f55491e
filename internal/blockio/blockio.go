// Package blockio reads, copies and compares image files by the ranges that
// hold data, so that a volume of 1 TiB with a few blocks in it costs a few
// blocks.
//
// It uses what the store offers: shared blocks (reflink) where it has them,
// else the map of data and holes. Both are asked of the kernel each time;
// nothing is remembered between calls.
//
// Data and holes are asked for with lseek(2), so every function may move the
// offset of the files it is given; callers use ReadAt and WriteAt. Several
// calls may work on one file at once.
package blockio

import "github.com/csiemu/csiemu/backends"

// Extent is a range of an image's bytes. It is the contract's own type, so that
// a backend hands on what it gets from here.
type Extent = backends.Extent
