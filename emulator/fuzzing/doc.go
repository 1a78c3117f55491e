// Package fuzzing holds the fuzz test of the whole driver: calls of any method
// with any message, through the chain of emulator/rpc, to an array and a node.
package fuzzing
