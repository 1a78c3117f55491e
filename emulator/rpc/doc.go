// Package rpc is what every CSI call passes on its way to a service method:
// the endpoint it comes in by, recovery from panics, the log, required fields
// and limits, locks, and the translation of errors to status codes.
//
// A server is built from ServerOptions, or services are registered through
// Registrar on a server that somebody else made. Both run the same ordered list
// of steps for unary calls and for streams, which chain.go shows.
package rpc
