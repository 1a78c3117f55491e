// Package nodemount is what the node halves of all backends that mount do alike:
// bind a staged volume at a path of a workload, ask the kernel what is there,
// take it away, and report on it.
//
// Nothing is remembered between calls, so every answer is the kernel's own. All
// functions are safe for concurrent use; for one path callers make one call at a
// time. Everything but this comment is Linux only.
package nodemount
