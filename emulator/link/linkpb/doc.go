// Package linkpb is the generated code of the protocol between node processes
// and the array process; package link speaks it.
package linkpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative link.proto
