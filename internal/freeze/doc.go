// Package freeze stops all writing to a mounted file system for the moment of a
// snapshot, and makes sure that it goes on again.
//
// A frozen file system outlives the process that froze it: its writers then
// sleep, uninterruptibly, until somebody thaws it. No code of a process runs
// after its SIGKILL, so a second process has to be there before the freeze: the
// watchdog. It gets a descriptor of the file system, freezes it, and thaws it
// when told to, when its socket to the parent closes, or when the limit passes.
//
// # The executable runs a second time
//
// The watchdog is the same executable, started again with an environment
// variable and one end of a socket pair as descriptor 3. An init function of
// this package finds both and never returns: main does not run there, nor does
// TestMain. What other packages do in their init functions, if Go's order puts
// them first, happens in the watchdog too. It is so because nothing else works
// everywhere: a goroutine or thread dies with its process, a fork without exec
// cannot run Go, and a helper binary would have to be installed beside every
// test that embeds this library. The variable without the socket does nothing.
//
// The watchdog has a session of its own, ignores the signals of terminals and
// service managers, works in /, and has no descriptors but its socket,
// /dev/null and what it froze. A Freezer starts one on first use and ends it in
// Close. If it dies, its parent thaws at once: nothing stays frozen without a
// guard. Only the death of both at one moment (a killed container, a lost PID
// namespace) leaves a file system frozen; Thaw repairs that at the next start.
//
// # Unmounting right after
//
// Only the watchdog holds the file system: the parent sends its descriptor and
// closes it at once, while no child can be forked. A descriptor that were open
// longer would also be open in each child of the parent between fork and exec,
// and an unmount right after the thaw would fail now and then.
package freeze
