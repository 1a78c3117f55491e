// Package scale holds the tests and benchmarks of an emulator with very many
// volumes: what a call costs does not depend on how many there are. It is a
// package of its own because what it measures is the process's.
package scale
