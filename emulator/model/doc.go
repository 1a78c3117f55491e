// Package model holds a test that lets many clients call the emulator at once,
// at random, and compares every answer with a small model of the specification:
// the answers of each family of objects have to be those of some order of its
// calls, one at a time (linearizability).
package model
