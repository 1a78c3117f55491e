// Package ceiling walks a volume through its life with bare system calls: what
// the kernel, the store and gRPC take for it when nothing else is done.
// Benchmarks compare the emulator with it in the same run.
//
// Each step does what the emulator's RPC of that name has to do: the same
// record writes (and flushes, with Sync), the same device and mount calls, and
// one empty RPC. It keeps no map, checks nothing and undoes nothing; it is no
// model for code.
package ceiling
