// Package filesystem is what lies on a device: it recognises content by its
// signatures, makes file systems, checks them and grows them.
//
// Making is fast because mkfs runs once a shape (type, size, sector) on a file
// that has no name. The blocks that it wrote are kept as a template, and every
// later volume gets a copy with a UUID of its own. A device is never formatted
// over something: it must be blank, or carry the mark of a format of this
// package that was interrupted.
//
// Paths may name block devices or plain image files. Everything but this comment
// is Linux only.
package filesystem
