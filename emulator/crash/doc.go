// Package crash holds the tests that kill an emulator, at every one of its kill
// points (internal/step) and at moments that nobody chose, and that damage what
// it lives on: it starts again, serves what it acknowledged, and leaves nothing
// that a record does not explain.
package crash
