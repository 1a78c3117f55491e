// Package imagefile is the file that holds the bytes of a volume or snapshot: it
// has its name only once it is whole, and is known by its identity, not by its
// path.
//
// All functions are safe for concurrent use; for one directory callers make one
// call at a time. Everything but this comment is Linux only.
package imagefile
