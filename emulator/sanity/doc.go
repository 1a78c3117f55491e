// Package sanity holds the test that runs csi-sanity against the emulator. It
// is a package of its own because csi-sanity brings a test framework that keeps
// a goroutine for ever.
package sanity
